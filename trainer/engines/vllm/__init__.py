"""Rollouts by vLLM 0.32: `local` in the process that generates, `server` in a process of its own."""
