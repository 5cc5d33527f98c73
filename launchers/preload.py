"""First import of the process that warm ranks are forked from: it must not outlive the parent.

Its ranks inherit the pipe by which the server would notice the parent's end, so that the pipe alone is not
enough; the kernel's parent-death signal is.
"""

from runner.parent_death import die_with_parent

die_with_parent()
