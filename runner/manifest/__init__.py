"""Files for engines that this project does not start itself: they run a frozen folder on machines of their own."""
