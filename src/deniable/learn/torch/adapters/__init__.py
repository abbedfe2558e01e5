"""Adapters: private training inside of other people's training loops. They need the extra `adapters`.

    hugging_face         PrivateTrainer: a subclass of transformers.Trainer
    lightning_callback   PrivateSteps: a callback for lightning.Trainer
    accelerate_loops     PrivateAccelerator: a subclass of accelerate.Accelerator
    step_numbers         what they share: one step of the host is one step of the plan
    example_losses       one loss for each example, from the logits of a Hugging Face model
    attention_masks      masks that keep the examples of a batch apart

The host's loop gets numbers of steps instead of batches. For each number, `Trainer.take(1)` draws the batch, clips,
adds noise and steps; the host schedules, logs, evaluates and saves around it.
"""
