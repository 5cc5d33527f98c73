"""How busy the machine is while a run trains, measured from outside the run."""
