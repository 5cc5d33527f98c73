"""The comparison at the end of a sweep: a table, pictures, and a page. Drawing libraries are imported late."""
