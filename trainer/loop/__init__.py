"""Training loops: a schedule over engine and learner."""
