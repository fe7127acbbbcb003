"""Programs that know nothing of racecheck, as a launcher starts them.  Not collected by pytest."""
