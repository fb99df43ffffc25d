/* The passes by name, included wherever a list of them is made. */
PASS(offload_activations)
PASS(step_in_backward)
PASS(stream_gradients)
PASS(ddp)
PASS(zero)
PASS(fsdp)
PASS(mean_of_weights)
PASS(offload_states)
