"""The mathematical suites as tasks of lm-eval 0.4.13, an optional second scorer (envs/evaluate.txt)."""
