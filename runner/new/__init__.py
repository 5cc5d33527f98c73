"""A new project of the user's own, from the files in ``template/``."""
