"""The number formats of a step: one file for each option of conf/precision; rank/precision.py is fp32."""
