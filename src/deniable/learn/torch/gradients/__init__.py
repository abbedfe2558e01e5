"""Per-example gradients of one batch from one backward pass: norms first, then clipped sums.

    forward_calls          one record for each call of a module, made by hooks; `attention_projections` for attention
    layers, vmap_rerun     from what went through a layer to captures of its gradients: closed forms, or vmap
    gradient_captures      what is known of one parameter's gradients from one use; `parameter_uses` joins the uses
    parameters, batch_layout, broadcast_additions, stacked_layers      where parameters and examples lie
    per_example            norms of all examples together, and their weighted sums
    bookkeeping            the pass itself; `gradient_check` compares it with vmap on a batch of one's choice

A batch's losses come in; the clipped sum of its per-example gradients goes to `gradient_noise`.
"""
