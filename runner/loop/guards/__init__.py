"""What may look at an update, stop it, repeat it or leave it out; nothing else of the loop knows these features."""
