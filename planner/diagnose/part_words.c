/* What of a traceback or a runtime's own line says what the memory was asked for.
 *
 * Words: PyTorch (nn/functional.py, autograd, distributed/fsdp), transformers (modeling files, cache_utils.py),
 * vLLM, verl, Megatron-LM's cross entropy, ggml (ggml-alloc.c, llama-kv-cache.cpp), ONNX Runtime's nodes. */
#include "tables.h"

/* Of the innermost frames and of a runtime's own lines. In order: a cross entropy stands in a forward pass whose
 * attention is long over. */
static const struct {
	const char *word;
	unsigned runtime;       /* traits; 0: any other */
	enum oom_crash_part part;
	uint64_t least;         /* smaller requests are for something else; 0: none are */
} words[] = {
	/* llama.cpp's cache is allocated by the same function as its weights (ggml-alloc.c); what failed is said behind it */
	{"buffer for kv cache", OOM_RUNTIME_LAYERED, OOM_PART_KV, 0},
	{"alloc_tensor_range", OOM_RUNTIME_LAYERED, OOM_PART_WEIGHTS, 0},
	/* functions of a cache reserve their graph too */
	{"gallocr_reserve", OOM_RUNTIME_LAYERED, OOM_PART_SCRATCH, 0},
	{"graph_reserve", OOM_RUNTIME_LAYERED, OOM_PART_SCRATCH, 0},
	{"failed to allocate compute", OOM_RUNTIME_LAYERED, OOM_PART_SCRATCH, 0},
	{"load_tensors", OOM_RUNTIME_LAYERED, OOM_PART_WEIGHTS, 0},
	{"kv_cache", OOM_RUNTIME_LAYERED, OOM_PART_KV, 0},
	{"kv cache", OOM_RUNTIME_LAYERED, OOM_PART_KV, 0},
	/* torch.nn.Module.to */
	{"t.to(device, dtype if t.is_floating_point()", 0, OOM_PART_WEIGHTS, 0},
	{"return t.to(", 0, OOM_PART_WEIGHTS, 0},
	/* a number for every output, not a row of a vocabulary */
	{"binary_cross_entropy", 0, OOM_PART_LOSS, 0},
	{"cross_entropy", 0, OOM_PART_LOGITS, 0},
	/* accelerate makes fp32 of what a model puts out */
	{"_convert_to_fp32", 0, OOM_PART_LOGITS, 0},
	{"entropy_from_logits", 0, OOM_PART_LOGITS, 0},
	{"log_softmax", 0, OOM_PART_LOGITS, 0},
	{"logsumexp", 0, OOM_PART_LOGITS, 0},
	{"logprob", 0, OOM_PART_LOGITS, 0},
	{"log_prob", 0, OOM_PART_LOGITS, 0},
	/* of relative positions, not of a vocabulary */
	{"rel_logits", 0, OOM_PART_SCORES, 0},
	{"lm_head(", 0, OOM_PART_LOGITS, 0},
	{"in unembed", 0, OOM_PART_LOGITS, 0},
	{"logits.float()", 0, OOM_PART_LOGITS, 0},
	{"logits = ", 0, OOM_PART_LOGITS, 0},
	/* states are made by _init_group, before it works on them */
	{"in _init_group", 0, OOM_PART_STATES, 0},
	{"_foreach_", 0, OOM_PART_TEMPORARIES, 0},
	{"_multi_tensor_", 0, OOM_PART_TEMPORARIES, 0},
	{"_single_tensor_", 0, OOM_PART_STATES, 0},
	{"exp_avg", 0, OOM_PART_STATES, 0},
	/* Megatron's and apex's fp32 copies of 16-bit weights */
	{"main_param", 0, OOM_PART_STATES, 0},
	{"master_param", 0, OOM_PART_STATES, 0},
	{"reduce_bucket_size", 0, OOM_PART_BUCKET, 0},
	{"all_gather", 0, OOM_PART_GATHERED, 0},
	{"wait_for_unshard", 0, OOM_PART_GATHERED, 0},
	{"_alloc_padded_unsharded", 0, OOM_PART_GATHERED, 0},
	{"reduce_scatter", 0, OOM_PART_GATHERED, 0},
	{"fetch_sub_module", 0, OOM_PART_GATHERED, 0},
	{"/cache_utils.py", 0, OOM_PART_KV, 0},
	{"\\cache_utils.py", 0, OOM_PART_KV, 0},
	{"key_cache", 0, OOM_PART_KV, 0},
	/* what is passed through a call is not what it asks for */
	{"past_key_value[", 0, OOM_PART_KV, 0},
	{"past_key_values[", 0, OOM_PART_KV, 0},
	{"past_key_value.update(", 0, OOM_PART_KV, 0},
	{"past_key_values.update(", 0, OOM_PART_KV, 0},
	{"layer_past[", 0, OOM_PART_KV, 0},
	{"_canonical_mask", 0, OOM_PART_SCORES, 0},
	{"attention_mask = torch.", 0, OOM_PART_SCORES, (uint64_t)1 << 30},
	{"causal_mask", 0, OOM_PART_SCORES, 0},
	{"attn_weights", 0, OOM_PART_SCORES, 0},
	{"attention_scores", 0, OOM_PART_SCORES, 0},
	{"attention_probs", 0, OOM_PART_SCORES, 0},
	{"eager_attention_forward", 0, OOM_PART_SCORES, 0},
	/* fused kernels ask for their output alone, which is as small as their input */
	{"scaled_dot_product_attention(", 0, OOM_PART_SCORES, (uint64_t)1 << 30},
	{"attention_basic", 0, OOM_PART_SCORES, 0},
	{"baddbmm(", 0, OOM_PART_SCORES, 0},
	{"attn_scores", 0, OOM_PART_SCORES, 0},
	{"cross_attention_forward", 0, OOM_PART_SCORES, 0},
	{"attnblock_forward", 0, OOM_PART_SCORES, 0},
	/* Transformer-XL's relative attention, which speech encoders keep */
	{"matrix_ac", 0, OOM_PART_SCORES, 0},
	{"matrix_bd", 0, OOM_PART_SCORES, 0},
	{"rel_shift", 0, OOM_PART_SCORES, 0},
	{"softmax(scores", 0, OOM_PART_SCORES, 0},
	{"softmax(attn", 0, OOM_PART_SCORES, 0},
	/* as blocks of transformers call it, whose scores are of 16 bits */
	{"input.softmax(dim, dtype=dtype)", 0, OOM_PART_SCORES, 0},
	/* queries against keys: the indices of both remain */
	{"j d -> b i j", 0, OOM_PART_SCORES, 0},
	{"j d -> b h i j", 0, OOM_PART_SCORES, 0},
	{"->bhqk", 0, OOM_PART_SCORES, 0},
	{"->...hqk", 0, OOM_PART_SCORES, 0},
	{"->...hqk", 0, OOM_PART_SCORES, 0},
	{"-> bhqk", 0, OOM_PART_SCORES, 0},
	{"(q @ k.transpose", 0, OOM_PART_SCORES, 0},
	{"q @ k.transpose", 0, OOM_PART_SCORES, 0},
	{"matmul(q, k", 0, OOM_PART_SCORES, 0},
	{"bmm(q, k", 0, OOM_PART_SCORES, 0},
	{"matmul(query, key", 0, OOM_PART_SCORES, 0},
	{"matmul(query_layer, key_layer", 0, OOM_PART_SCORES, 0},
	{"_matmul_with_relative_keys", 0, OOM_PART_SCORES, 0},
	{"cdist(", 0, OOM_PART_PAIRS, 0},
	/* optical flow, stereo: every pixel against every other */
	{"/corr.py", 0, OOM_PART_PAIRS, 0},
	{", in corr\n", 0, OOM_PART_PAIRS, 0},
	{"corr = torch.", 0, OOM_PART_PAIRS, 0},
	{"cost_volume", 0, OOM_PART_PAIRS, 0},
	{"bbox_overlaps", 0, OOM_PART_PAIRS, 0},
	{"box_iou", 0, OOM_PART_PAIRS, 0},
	/* whatever its boxes are: "boxlist_iou(a, b)" */
	{"_iou(", 0, OOM_PART_PAIRS, 0},
	{"_ious(", 0, OOM_PART_PAIRS, 0},
	{"match_quality_matrix", 0, OOM_PART_PAIRS, 0},
	{"bbox_iou", 0, OOM_PART_PAIRS, 0},
	{"iou_calculator", 0, OOM_PART_PAIRS, 0},
	{"pairwise", 0, OOM_PART_PAIRS, 0},
	{"square_distance(", 0, OOM_PART_PAIRS, 0},
	{"chamfer", 0, OOM_PART_PAIRS, 0},
	{"in knn", 0, OOM_PART_PAIRS, 0},
	{"message_passing.py", 0, OOM_PART_EDGES, 0},
	{"in message\n", 0, OOM_PART_EDGES, 0},
	{"in message(", 0, OOM_PART_EDGES, 0},
	{"def message(", 0, OOM_PART_EDGES, 0},
	{"torch_scatter/", 0, OOM_PART_EDGES, 0},
	{"/dgl/", 0, OOM_PART_EDGES, 0},
	{"torch.cat(all_", 0, OOM_PART_JOINED, 0},
	{"torch.cat(outputs", 0, OOM_PART_JOINED, 0},
	{"stack_batches", 0, OOM_PART_JOINED, 0},
	{"torch.cat(results", 0, OOM_PART_JOINED, 0},
	{"torch.cat(preds", 0, OOM_PART_JOINED, 0},
	{"torch.stack(outputs", 0, OOM_PART_JOINED, 0},
	{"torch.stack(preds", 0, OOM_PART_JOINED, 0},
	/* masks of regions are put into masks of the image */
	{"paste_mask", 0, OOM_PART_SCALED, 0},
	{"F.interpolate(", 0, OOM_PART_SCALED, (uint64_t)1 << 30},
	{"functional.interpolate(", 0, OOM_PART_SCALED, (uint64_t)1 << 30},
	{".upsample_", 0, OOM_PART_SCALED, (uint64_t)1 << 30},
	{"nn/modules/upsampling.py", 0, OOM_PART_SCALED, (uint64_t)1 << 30},
	{"combinations", 0, OOM_PART_PAIRS, 0},
	/* nodes of ONNX Runtime: a product that is scaled is one of queries and keys (its fusion MatMulScaleFusion) */
	{"FusedMatMulAndScale", 0, OOM_PART_SCORES, 0},
	{"running Softmax node", 0, OOM_PART_SCORES, (uint64_t)1 << 30},
	{"running Attention node", 0, OOM_PART_SCORES, 0},
	{"running MultiHeadAttention node", 0, OOM_PART_SCORES, 0},
	{"running Conv node", 0, OOM_PART_MAPS, (uint64_t)16 << 20},
	{"running FusedConv node", 0, OOM_PART_MAPS, (uint64_t)16 << 20},
	{"running ConvTranspose node", 0, OOM_PART_MAPS, (uint64_t)16 << 20},
	{"running Resize node", 0, OOM_PART_SCALED, 0},
	{"vae.decode", 0, OOM_PART_IMAGE, 0},
	{"decode_first_stage", 0, OOM_PART_IMAGE, 0},
	{"first_stage_model.decode", 0, OOM_PART_IMAGE, 0},
	{"VAE decoding", 0, OOM_PART_IMAGE, 0},
	{"autoencoder_kl", 0, OOM_PART_IMAGE, 0},
	{"VAEDecode", 0, OOM_PART_IMAGE, 0},
	{"latents_to_image", 0, OOM_PART_IMAGE, 0},
	{"in decode_latents", 0, OOM_PART_IMAGE, 0},
	{"VideoDecode", 0, OOM_PART_IMAGE, 0},
	{"tokenizers/wan", 0, OOM_PART_IMAGE, 0},
	{"_conv_forward", 0, OOM_PART_MAPS, 0},
	{"F.conv2d(", 0, OOM_PART_MAPS, 0},
	{"F.conv3d(", 0, OOM_PART_MAPS, 0},
	{"nn/modules/conv.py", 0, OOM_PART_MAPS, 0},
};

/* Anywhere in the traceback: what was under way says more than what it called. */
static const struct {
	const char *word;
	enum oom_crash_part part;
} deep[] = {
	{"determine_num_available_blocks", OOM_PART_WARMUP},
	{"determine_available_memory", OOM_PART_WARMUP},
	{"profile_run", OOM_PART_WARMUP},
	{"in warmup", OOM_PART_WARMUP},
	/* what slept beside a trainer takes its share again */
	{"inference_engine.wake_up(", OOM_PART_ENGINE},
	{"engine.wake_up(", OOM_PART_ENGINE},
	{"engine.resume_memory_occupation(", OOM_PART_ENGINE},
	{"capture_end()", OOM_PART_GRAPHS},
	{"in capture_model", OOM_PART_GRAPHS},
	{"in capture_one_batch_size", OOM_PART_GRAPHS},
	{"in capture\n", OOM_PART_GRAPHS},
	{"init_cuda_graphs", OOM_PART_GRAPHS},
	{"cuda_graph_runner", OOM_PART_GRAPHS},
	/* torch.distributed, before a model is moved */
	{"init_process_group(", OOM_PART_CONTEXT},
	{"in init_process_group", OOM_PART_CONTEXT},
	{"initialize_optimizer_states", OOM_PART_STATES},
	/* exllamav2/cache.py */
	{"in create_state_tensors", OOM_PART_KV},
	/* DeepSpeed's engine has the weights by then: it makes fp32 copies and states */
	{"in _configure_zero_optimizer", OOM_PART_STATES},
	/* peft/tuners, and scripts around it */
	{"merge_and_unload", OOM_PART_MERGED},
	{"in get_delta_weight", OOM_PART_MERGED},
	{"in merge_lora", OOM_PART_MERGED},
	{"in export_model", OOM_PART_MERGED},
	/* a module's parameters, one after the other */
	{", in _apply", OOM_PART_WEIGHTS},
	{"_move_model_to_device", OOM_PART_WEIGHTS},
	/* adapters go to where the weights of the base lie, which are there by then */
	{"in get_peft_model", OOM_PART_WEIGHTS},
	{"render_rays", OOM_PART_RAYS},
	{"batchify_rays", OOM_PART_RAYS},
	{"raymarching", OOM_PART_RAYS},
	{"rays_o", OOM_PART_RAYS},
	{"(rays)", OOM_PART_RAYS},
	/* sparse convolutions, and layers of point clouds */
	{"MinkowskiEngine", OOM_PART_POINTS},
	{"spconv/", OOM_PART_POINTS},
	{"torchsparse", OOM_PART_POINTS},
	{"torch_points3d", OOM_PART_POINTS},
	{"pointnet2", OOM_PART_POINTS},
	{"pointops", OOM_PART_POINTS},
	{"point_cloud", OOM_PART_POINTS},
	{"geotransformer", OOM_PART_POINTS},
	{"superpoint_", OOM_PART_POINTS},
	/* whichever decoder of its own a node or pipeline calls */
	{"vae.decode(", OOM_PART_IMAGE},
	{"vae_decode(", OOM_PART_IMAGE},
	{"in decode_first_stage", OOM_PART_IMAGE},
	{"_vae.py\", line", OOM_PART_IMAGE},
	{"in tiled_decode", OOM_PART_IMAGE},
	{"in decode_tiled", OOM_PART_IMAGE},
	{".decode_tiled", OOM_PART_IMAGE},
	/* Segment Anything's, of the first and of the second */
	{"set_torch_image", OOM_PART_FIXED},
	{"self.model.forward_image(", OOM_PART_FIXED},
	{"_load_best_model", OOM_PART_RESTORED},
	{"optimizer.load_state_dict", OOM_PART_RESTORED},
	{"_load_optimizer_and_scheduler", OOM_PART_RESTORED},
	{"in load_optimizer", OOM_PART_RESTORED},
	{"in load_opt_state", OOM_PART_RESTORED},
	{"'optimizers.bin'", OOM_PART_RESTORED},
	{"load_optimizer_states", OOM_PART_RESTORED},
	{"in _load_zero_checkpoint", OOM_PART_RESTORED},
	{"optim_state_dict_to_load", OOM_PART_RESTORED},
};

enum oom_crash_part oom_part_deep(const char *from, const char *to)
{
	for (size_t i = 0; i < sizeof(deep) / sizeof(deep[0]); i++)
		if (oom_text_find(from, to, deep[i].word))
			return deep[i].part;
	return OOM_PART_UNKNOWN;
}

enum oom_crash_part oom_part_near(const char *from, const char *to, bool layered, uint64_t tried)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (((words[i].runtime & OOM_RUNTIME_LAYERED) != 0) == layered && (!words[i].least || tried >= words[i].least) &&
		    oom_text_find(from, to, words[i].word))
			return words[i].part;
	return OOM_PART_UNKNOWN;
}
