/* What the run was told by options of its own: numbers and switches that the answers have a use for.
 *
 * The names are those of the programs' documentation (dialect_*.c). */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"

enum { FLAG = -1, OFF = -2, HALF = -3, WHOLE = -4 };
/* In names "-" and "_" are the same. */
static const struct {
	const char *name;
	const char *as;         /* what it is called in the words; NULL: the same */
	double least;           /* no less than this; FLAG: it has no number; OFF: it is told by "false"; HALF: by a type of 16 bits; WHOLE: of 32 */
	enum oom_told_about about;
} rows[] = {
	/* shares of the card */
	{"gpu_memory_utilization", NULL, 0.1, 0},
	{"vllm_gpu_memory_utilization", NULL, 0.1, 0},
	{"mem_fraction_static", NULL, 0.1, 0},
	{"sglang_mem_fraction_static", NULL, 0.1, 0},
	{"cuda_memory_fraction", NULL, 0.1, 0},
	{"cache_max_entry_count", NULL, 0.1, 0},
	{"free_gpu_memory_fraction", NULL, 0.1, 0},
	{"kv_cache_free_gpu_memory_fraction", "free_gpu_memory_fraction", 0.1, 0},
	/* lengths */
	{"max_model_len", NULL, 256, 0},
	{"vllm_max_model_len", NULL, 256, 0},
	{"context_length", NULL, 256, 0},
	{"max_total_tokens", NULL, 256, 0},
	{"max_input_tokens", NULL, 256, 0},
	{"session_len", NULL, 256, 0},
	{"max_seq_len", NULL, 256, OOM_ABOUT_LENGTH},
	{"max_seq_length", NULL, 256, OOM_ABOUT_LENGTH},
	{"max_length", NULL, 256, OOM_ABOUT_LENGTH},
	{"max_completion_length", NULL, 64, OOM_ABOUT_MADE},
	{"max_prompt_length", NULL, 64, 0},
	{"max_response_length", NULL, 64, OOM_ABOUT_MADE},
	{"cutoff_len", NULL, 256, OOM_ABOUT_LENGTH},
	{"sequence_len", NULL, 256, OOM_ABOUT_LENGTH},
	{"seq_length", NULL, 256, OOM_ABOUT_LENGTH},
	{"max_new_tokens", NULL, 64, OOM_ABOUT_MADE},
	{"n_ctx", NULL, 256, 0},
	/* as llama.cpp prints them */
	{"n_ctx", "c", 256, 0},
	{"n_ctx", "ctx_size", 256, 0},
	{"max_seq_len", "ctx_size", 256, 0},
	{"num_ctx", NULL, 256, 0},
	{"OLLAMA_CONTEXT_LENGTH", "num_ctx", 256, 0},
	{"c", NULL, 256, 0},
	{"ctx_size", "c", 256, 0},
	{"resolution", NULL, 256, OOM_ABOUT_SIDE},
	{"imgsz", NULL, 64, OOM_ABOUT_SIDE},
	/* how much at once */
	{"max_num_seqs", NULL, 1, 0},
	{"max_num_batched_tokens", NULL, 256, 0},
	{"max_running_requests", NULL, 1, 0},
	{"chunked_prefill_size", NULL, 256, 0},
	{"cuda_graph_max_bs", NULL, 1, 0},
	{"max_batch_prefill_tokens", NULL, 256, 0},
	{"max_batch_total_tokens", NULL, 256, 0},
	/* as text-generation-inference prints them */
	{"max_prefill_tokens", "max_batch_prefill_tokens", 256, 0},
	{"max_input_length", "max_input_tokens", 256, 0},
	{"max_batch_size", NULL, 1, 0},
	{"max_num_tokens", NULL, 256, 0},
	{"maxNumTokens", "max_num_tokens", 256, 0},
	{"maxBatchSize", "max_batch_size", 1, 0},
	{"max_pixels", NULL, 50176, OOM_ABOUT_PIXELS},
	{"MAX_PIXELS", NULL, 50176, OOM_ABOUT_PIXELS},
	{"image_max_pixels", NULL, 50176, OOM_ABOUT_PIXELS},
	{"max_prefill_token_num", NULL, 256, 0},
	{"np", NULL, 1, 0},
	{"parallel", "np", 1, 0},
	{"OLLAMA_NUM_PARALLEL", NULL, 1, 0},
	{"ub", NULL, 32, 0},
	{"ubatch_size", "ub", 32, 0},
	{"n_ubatch", NULL, 32, 0},
	{"n_ubatch", "ub", 32, 0},
	{"n_batch", NULL, 32, 0},
	{"num_batch", NULL, 32, 0},
	{"num_generations", NULL, 2, 0},
	{"generation_batch_size", NULL, 1, 0},
	/* batches */
	{"per_device_train_batch_size", NULL, 1, OOM_ABOUT_BATCH},
	{"per_device_eval_batch_size", NULL, 1, OOM_ABOUT_EVAL_BATCH},
	{"eval_batch_size", NULL, 1, OOM_ABOUT_EVAL_BATCH},
	{"gradient_accumulation_steps", NULL, 1, 0},
	{"micro_batch_size", NULL, 1, OOM_ABOUT_BATCH},
	{"train_micro_batch_size_per_gpu", NULL, 1, OOM_ABOUT_BATCH},
	{"ppo_micro_batch_size_per_gpu", NULL, 1, 0},
	{"log_prob_micro_batch_size_per_gpu", NULL, 1, 0},
	{"max_tokens_per_gpu", NULL, 256, 0},
	{"ppo_max_token_len_per_gpu", NULL, 256, 0},
	{"log_prob_max_token_len_per_gpu", NULL, 256, 0},
	{"use_dynamic_bsz", NULL, FLAG, 0},
	{"train_batch_size", NULL, 1, OOM_ABOUT_BATCH},
	{"vae_batch_size", NULL, 1, 0},
	{"batch_size", NULL, 1, OOM_ABOUT_BATCH},
	{"batch", NULL, 1, OOM_ABOUT_BATCH},
	{"max_tokens", NULL, 256, 0},
	{"num_images_per_prompt", NULL, 1, 0},
	{"calib_samples", NULL, 16, 0},
	{"calib_seqlen", NULL, 256, 0},
	{"n_samples", NULL, 16, 0},
	{"eval_accumulation_steps", NULL, 1, 0},
	{"dataloader_num_workers", NULL, 0, 0},
	{"preprocessing_num_workers", NULL, 1, 0},
	{"num_workers", NULL, 0, 0},
	{"workers", NULL, 0, 0},
	{"nproc_per_node", NULL, 1, 0},
	{"num_processes", "nproc_per_node", 1, 0},
	{"tensor_parallel_size", NULL, 1, 0},
	{"tp", "tensor_parallel_size", 1, 0},
	{"tp_size", "tensor_parallel_size", 1, 0},
	{"num_shard", NULL, 1, 0},
	/* without a number */
	{"enable_model_cpu_offload", NULL, FLAG, 0},
	{"enable_sequential_cpu_offload", NULL, FLAG, 0},
	{"enable_vae_tiling", NULL, FLAG, 0},
	{"enable_vae_slicing", NULL, FLAG, 0},
	{"enable_attention_slicing", NULL, FLAG, 0},
	{"lowvram", NULL, FLAG, 0},
	{"medvram", NULL, FLAG, 0},
	{"lowram", NULL, FLAG, 0},
	{"fp8_base", NULL, FLAG, 0},
	{"fp8_e4m3fn_unet", NULL, FLAG, 0},
	{"blocks_to_swap", NULL, FLAG, 0},
	{"cache_latents", NULL, FLAG, 0},
	{"cache_text_encoder_outputs", NULL, FLAG, 0},
	{"disable_tta", NULL, FLAG, 0},
	{"load_in_4bit", NULL, FLAG, 0},
	{"load_in_8bit", NULL, FLAG, 0},
	{"low_cpu_mem_usage", NULL, FLAG, 0},
	{"bf16_full_eval", NULL, FLAG, 0},
	{"fp16_full_eval", "bf16_full_eval", FLAG, 0},
	{"preprocess_logits_for_metrics", NULL, FLAG, 0},
	{"sync_module_states", NULL, FLAG, 0},
	{"sdpa", NULL, FLAG, 0},
	{"sdpa", "scaled_dot_product_attention", FLAG, 0},
	/* samples that calibrate a quantisation */
	{"num_calibration_samples", NULL, 16, 0},
	{"max_calib_samples", NULL, 16, 0},
	{"max_calib_seq_len", NULL, 128, 0},
	{"torch_dtype", NULL, HALF, 0},
	{"torch_dtype", "dtype", HALF, 0},
	{"dtype", NULL, HALF, 0},
	{"dtype", "whole_dtype", WHOLE, 0},
	{"torch_dtype", "whole_dtype", WHOLE, 0},
	{"use_mmap", NULL, FLAG, 0},
	{"highvram", NULL, FLAG, 0},
	{"gpu_only", NULL, FLAG, 0},
	{"no_half", NULL, FLAG, 0},
	{"use_ema", NULL, FLAG, 0},
	{"no_mmap", NULL, FLAG, 0},
	{"disable_mmap", NULL, FLAG, 0},
	{"mlock", NULL, FLAG, 0},
	{"disable_gradient_checkpointing", NULL, FLAG, 0},
	{"modules_to_save", NULL, FLAG, 0},
	{"XLA_PYTHON_CLIENT_PREALLOCATE", NULL, OFF, 0},
	/* by what they are about, where no name above is theirs */
	{"~batch", NULL, 1, OOM_ABOUT_BATCH},
	{"~eval_batch", NULL, 1, OOM_ABOUT_EVAL_BATCH},
	{"~length", NULL, 64, OOM_ABOUT_LENGTH},
	{"~made", NULL, 64, OOM_ABOUT_MADE},
	{"~side", NULL, 32, OOM_ABOUT_SIDE},
	{"~count", NULL, 2, OOM_ABOUT_COUNT},
	{"~tile", NULL, 32, OOM_ABOUT_TILE},
};

bool oom_told_same(const char *p, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (name[i] != (p[i] == '-' ? '_' : p[i]))
			return false;
	return !name[n];
}

const char *oom_told_as(const struct oom_crash_told *t)
{
	return rows[t->row].as ? rows[t->row].as : rows[t->row].name;
}

double oom_told_least(const struct oom_crash_told *t)
{
	return rows[t->row].least;
}

/* One that is told twice stays as it was first: logs repeat the command line, and change it in their own words. */
static struct oom_crash_told *known(struct oom_crash *c, size_t row)
{
	for (size_t i = 0; i < c->n_told; i++)
		if (c->told[i].row == row)
			return &c->told[i];
	return NULL;
}

/* "8," of a list, "0.9." of a sentence, "1" before a sign of another script. */
static bool number_of(const char *value, double *v)
{
	char *end;

	*v = strtod(value, &end);
	return end > value && isfinite(*v) && (!*end || (*end == '.' && !end[1]) || *end == 'k' || (unsigned char)*end >= 0x80);
}

/* One more of that row, if its value has the row's form. */
static void note(struct oom_crash *c, size_t row, const char *spelled, size_t n, const char *value)
{
	/* encoder and decoder have pieces of their own: it is the decoder that makes the whole picture */
	const bool instead = rows[row].about == OOM_ABOUT_TILE && oom_text_find(spelled, spelled + n, "decod") && known(c, row);
	struct oom_crash_told *const t = instead ? known(c, row) : &c->told[c->n_told];
	const double least = rows[row].least;
	double v = 0;

	if (c->n_told == OOM_CRASH_TOLD || (known(c, row) && !instead) || (least == HALF && !strstr(value, "16")))
		return;
	/* an option or an argument of a loader, no tensor's type */
	if (least == WHOLE && ((*spelled != '-' && strcmp(rows[row].name, "torch_dtype")) ||
	    (strcmp(value, "float") && !strstr(value, "float32") && !strstr(value, "fp32"))))
		return;
	if (least >= 0 && (!number_of(value, &v) || v < 0 || v > 1e7))
		return;
	/* "-c 'import torch'", "-c config.yaml", a share in percent; what is about a length or a side, and too small for one */
	if ((strlen(rows[row].name) < 3 && v < least) || (least > 0 && least < 1 && v > 1) || (*rows[row].name == '~' && v < least))
		return;
	memcpy(t->name, spelled, n);
	t->name[n] = 0;
	t->value = v;
	t->row = (uint8_t)row;
	c->n_told += !instead;
}

/* "NUM_CALIBRATION_SAMPLES = 256": a script's constant is called as the option that it is given to. */
static bool is_constant(const char *p, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!name[i] || toupper((unsigned char)name[i]) != p[i])
			return false;
	return n > 8 && !name[n];
}

void oom_told_note(struct oom_crash *c, const char *spelled, const char *name, size_t n, const char *value)
{
	const size_t long_name = (size_t)(name - spelled) + n;
	enum oom_told_about about = OOM_ABOUT_ELSE;
	bool found = false;

	/* of one letter or two only with their dash: "-c 4096" */
	if (long_name >= sizeof(c->told[0].name) || (n < 3 && (name == spelled || name[-1] != '-')))
		return;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (oom_told_same(name, n, rows[i].name) || is_constant(name, n, rows[i].name)) {
			note(c, i, spelled, long_name, value);
			found = true;
		}
	if (!found)
		about = oom_told_about_name(name, n);
	if (!found && about == OOM_ABOUT_ELSE)
		about = oom_about_of_key(name, n);
	for (size_t i = 0; about != OOM_ABOUT_ELSE && i < sizeof(rows) / sizeof(rows[0]); i++)
		if (*rows[i].name == '~' && rows[i].about == about)
			note(c, i, spelled, long_name, value);
}

enum oom_told_about oom_told_about(const struct oom_crash_told *t)
{
	return rows[t->row].about;
}

/* "batch_size = 6", "micro_batch_size = 2": where both are told, the first is of several steps. */
static const struct oom_crash_told *told_micro(const struct oom_crash *c)
{
	for (size_t i = 0; i < c->n_told; i++)
		if (rows[c->told[i].row].about == OOM_ABOUT_BATCH && (strstr(c->told[i].name, "micro") || strstr(c->told[i].name, "per_device") || strstr(c->told[i].name, "per-device")))
			return &c->told[i];
	return NULL;
}

const struct oom_crash_told *oom_told_first(const struct oom_crash *c, enum oom_told_about about)
{
	if (about == OOM_ABOUT_BATCH && told_micro(c))
		return told_micro(c);
	for (size_t i = 0; i < c->n_told; i++)
		if (rows[c->told[i].row].about == about)
			return &c->told[i];
	return NULL;
}

void oom_told_batch_of_one(struct oom_crash *c)
{
	for (size_t i = 0; i < c->n_told; i++)
		if (rows[c->told[i].row].about == OOM_ABOUT_BATCH)
			c->told[i].value = 1;
}

bool oom_told_off(const char *name, size_t n)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].least == OFF && oom_told_same(name, n, rows[i].name))
			return true;
	return false;
}

double oom_told(const struct oom_crash *c, const char *name)
{
	for (size_t i = 0; i < c->n_told; i++)
		if (!strcmp(oom_told_as(&c->told[i]), name))
			return rows[c->told[i].row].least < 0 ? 1 : c->told[i].value;
	return 0;
}

/* Options that take memory for speed: what to do without first. */
static const struct {
	const char *name, *words;
	bool host;              /* of the host's memory */
} costs[] = {
	{"highvram", "without --highvram: models stay on the card after they were used", false},
	{"gpu_only", "without --gpu-only: text encoders and decoders lie on the card as well", false},
	{"use_ema", "without --use_ema: the averaged copy of all weights lies on the card as well", false},
	{"no_half", "without --no-half: weights in 32 bits are twice as large", false},
	{"whole_dtype", "weights in 16 bits (dtype half or bfloat16): those of 32 bits, which this run was told to take, are twice as large", false},
	{"disable_gradient_checkpointing", "without disable_gradient_checkpointing: activations of all layers are kept", false},
	{"modules_to_save", "without embed_tokens and lm_head among the modules that are trained: whole, with gradients and states, they take more than the adapters (of a large vocabulary GBs)", false},
	{"no_mmap", "without --no-mmap: the file is then mapped, not copied", true},
	{"disable_mmap", "without --disable-mmap: the file is then mapped, not copied", true},
	{"mlock", "without --mlock: pages that are not in use can then leave the memory", true},
};

const char *oom_told_cost(const struct oom_crash *c, bool host)
{
	for (size_t i = 0; i < sizeof(costs) / sizeof(costs[0]); i++)
		if (costs[i].host == host && oom_told(c, costs[i].name) > 0)
			return costs[i].words;
	return NULL;
}
