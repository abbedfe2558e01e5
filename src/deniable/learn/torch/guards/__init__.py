"""Guards: what must hold for a model so that clipping one example's gradient bounds that example's influence.

    training_checks      refuses models, optimizers, datasets and losses before any record is used
    separation_trace     traces a forward pass operation by operation: does it keep its examples apart?
    separation_rules, tensor_domains      the rule of each torch operation, and the domains of tensors
    forward_programs     the operations of a pass, compared with those of a traced one; `torch_calls` notes its calls
    backward_graphs      the autograd graph of the losses, and Python code in it
    sum_comparison       for separation that is assumed: sums over random batches, compared with autograd
    single_example       compares a model's output for one example alone with its output in a batch
    cleared_memory       memory that an operation leaves uninitialised holds nothing of other examples
    batch_guard          applies the guards between a batch and its backward pass; `batch_rows` reads its tensors
    forward_watch, module_state, outside_state, thread_watch      state that a pass must not change
    object_snapshots, inner_states      how that state is read and put back

The trainer calls `training_checks` once and `batch_guard` for each batch; a batch that fails is not used.
"""
