"""Per-example gradients of one batch from one backward pass: norms first, then clipped sums.

    forward_calls          one record for each call of a module, made by hooks; `attention_projections` for attention
    layers, vmap_rerun     from a layer's input and output gradient to captures: closed forms, or vmap
    gradient_captures      one parameter's gradients from one use, as factors; `convolutions` has those of convolutions,
                           and `parameter_uses` combines the uses
    parameters, batch_layout, broadcast_additions, stacked_layers      where parameters and examples lie
    reduced_norms          layer normalisations of large models, summed over places during the backward pass
    per_example            norms over all parameters, and weighted sums over examples; `gradient_sums` adds up batches
    step_graphs            forward and backward pass as one graph, captured once for a shape of batches;
                           `device_graphs` changes it for a compiler
    bookkeeping            the pass itself; read its first page first
    autograd_comparison    the test of what bookkeeping learned; `gradient_check` is the test that users run

Input: the losses of a batch. Output: the clipped sum of its per-example gradients, for `gradient_noise`.
"""
