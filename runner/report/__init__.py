"""The comparison that a sweep ends in: a table, pictures, and a page. Drawing libraries are imported late."""
