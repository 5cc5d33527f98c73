"""What more devices would bring: a step described as data, replayed on networks that are described as data."""
