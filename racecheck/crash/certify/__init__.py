"""Are the models right?  Random programs on real file systems that crash."""
