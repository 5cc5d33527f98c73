"""data=table: files of rows and columns, one of which is predicted from the others."""
