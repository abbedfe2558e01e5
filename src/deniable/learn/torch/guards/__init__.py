"""Guards: what must hold for a model so that clipping one example's gradient bounds that example's influence.

    training_checks      models, optimizers, datasets and losses that are refused before anything is read
    separation_trace     a forward pass followed operation by operation: are its examples kept apart?
    separation_rules, tensor_domains      the rule of each torch operation, and what a tensor may be
    single_example       a model asked about one example alone
    batch_guard          which of these apply between a batch and its backward pass
    forward_watch, module_state, outside_state, object_snapshots, thread_watch      what a pass must leave alone

The trainer calls `training_checks` once and `batch_guard` for each batch; a batch that fails is not trained on.
"""
