"""NCCL's rules on CPUs: Gloo does the work of a test's ranks, whose calls are recorded, and then replayed as NCCL's.

Gloo returns from a send at once, sorts messages by tags, and runs calls of several groups at the same time; NCCL runs
the calls of a rank one after the other, and each waits for its partners. So a program may end under Gloo and wait for
ever under NCCL. The replay needs no time and no GPU, and gives the same answer each time.
"""
