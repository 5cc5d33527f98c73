"""Charts as plain data, the pages of HTML that show them, and what their drawings share."""
