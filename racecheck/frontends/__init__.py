"""What people and CI start: the command line, the pytest plugin, property tests, the suite in tests."""
