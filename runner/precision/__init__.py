"""In which number formats a step computes: one file for each option of conf/precision; base.py is fp32."""
