"""In which number formats a step computes: one file for each option of conf/precision; rank/precision.py is fp32."""
