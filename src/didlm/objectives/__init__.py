"""The objectives: what a set of insertion scores costs against the exact targets.

`dense` is the mathematics over full tables, `sparse` the same for factored scores and sparse
targets, and `noise` says which states to visit and how much each counts. A bound in nats per text
is the mean of `noise` weight times `sparse` cost.
"""

from didlm.objectives import dense, noise, sparse

__all__ = ["dense", "noise", "sparse"]
