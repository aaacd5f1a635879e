"""Rollout engines behind one small protocol."""
