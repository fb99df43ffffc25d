/* What the run was told by options of its own: numbers and switches that the answers have a use for.
 *
 * The names are those of the programs' documentation (dialect_*.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"

enum { FLAG = -1, OFF = -2, HALF = -3 };
/* In names "-" and "_" are the same. */
static const struct {
	const char *name;
	const char *as;         /* what it is called in the words; NULL: the same */
	double least;           /* no less than this; FLAG: it has no number; OFF: it is told by "false"; HALF: by a type of 16 bits */
} rows[] = {
	/* shares of the card */
	{"gpu_memory_utilization", NULL, 0.1},
	{"vllm_gpu_memory_utilization", NULL, 0.1},
	{"mem_fraction_static", NULL, 0.1},
	{"sglang_mem_fraction_static", NULL, 0.1},
	{"cuda_memory_fraction", NULL, 0.1},
	{"cache_max_entry_count", NULL, 0.1},
	{"free_gpu_memory_fraction", NULL, 0.1},
	{"kv_cache_free_gpu_memory_fraction", "free_gpu_memory_fraction", 0.1},
	/* lengths */
	{"max_model_len", NULL, 256},
	{"vllm_max_model_len", NULL, 256},
	{"context_length", NULL, 256},
	{"max_total_tokens", NULL, 256},
	{"max_input_tokens", NULL, 256},
	{"session_len", NULL, 256},
	{"max_seq_len", NULL, 256},
	{"max_seq_length", NULL, 256},
	{"max_length", NULL, 256},
	{"max_completion_length", NULL, 64},
	{"max_prompt_length", NULL, 64},
	{"max_response_length", NULL, 64},
	{"cutoff_len", NULL, 256},
	{"sequence_len", NULL, 256},
	{"seq_length", NULL, 256},
	{"max_new_tokens", NULL, 64},
	{"n_ctx", NULL, 256},
	{"num_ctx", NULL, 256},
	{"OLLAMA_CONTEXT_LENGTH", "num_ctx", 256},
	{"c", NULL, 256},
	{"ctx_size", "c", 256},
	{"resolution", NULL, 256},
	{"imgsz", NULL, 64},
	/* how much at once */
	{"max_num_seqs", NULL, 1},
	{"max_num_batched_tokens", NULL, 256},
	{"max_running_requests", NULL, 1},
	{"chunked_prefill_size", NULL, 256},
	{"cuda_graph_max_bs", NULL, 1},
	{"max_batch_prefill_tokens", NULL, 256},
	{"max_batch_total_tokens", NULL, 256},
	{"max_batch_size", NULL, 1},
	{"max_num_tokens", NULL, 256},
	{"maxNumTokens", "max_num_tokens", 256},
	{"maxBatchSize", "max_batch_size", 1},
	{"max_pixels", NULL, 50176},
	{"image_max_pixels", NULL, 50176},
	{"max_prefill_token_num", NULL, 256},
	{"np", NULL, 1},
	{"parallel", "np", 1},
	{"OLLAMA_NUM_PARALLEL", NULL, 1},
	{"ub", NULL, 32},
	{"ubatch_size", "ub", 32},
	{"n_ubatch", NULL, 32},
	{"n_batch", NULL, 32},
	{"num_batch", NULL, 32},
	{"num_generations", NULL, 2},
	{"generation_batch_size", NULL, 1},
	/* batches */
	{"per_device_train_batch_size", NULL, 1},
	{"per_device_eval_batch_size", NULL, 1},
	{"gradient_accumulation_steps", NULL, 1},
	{"micro_batch_size", NULL, 1},
	{"train_micro_batch_size_per_gpu", NULL, 1},
	{"ppo_micro_batch_size_per_gpu", NULL, 1},
	{"log_prob_micro_batch_size_per_gpu", NULL, 1},
	{"max_tokens_per_gpu", NULL, 256},
	{"train_batch_size", NULL, 1},
	{"vae_batch_size", NULL, 1},
	{"batch_size", NULL, 1},
	{"batch", NULL, 1},
	{"max_tokens", NULL, 256},
	{"num_images_per_prompt", NULL, 1},
	{"calib_samples", NULL, 16},
	{"calib_seqlen", NULL, 256},
	{"n_samples", NULL, 16},
	{"eval_accumulation_steps", NULL, 1},
	{"dataloader_num_workers", NULL, 0},
	{"preprocessing_num_workers", NULL, 1},
	{"num_workers", NULL, 0},
	{"workers", NULL, 0},
	{"nproc_per_node", NULL, 1},
	{"num_processes", "nproc_per_node", 1},
	{"tensor_parallel_size", NULL, 1},
	/* without a number */
	{"enable_model_cpu_offload", NULL, FLAG},
	{"enable_sequential_cpu_offload", NULL, FLAG},
	{"enable_vae_tiling", NULL, FLAG},
	{"enable_vae_slicing", NULL, FLAG},
	{"enable_attention_slicing", NULL, FLAG},
	{"lowvram", NULL, FLAG},
	{"medvram", NULL, FLAG},
	{"lowram", NULL, FLAG},
	{"fp8_base", NULL, FLAG},
	{"fp8_e4m3fn_unet", NULL, FLAG},
	{"blocks_to_swap", NULL, FLAG},
	{"cache_latents", NULL, FLAG},
	{"cache_text_encoder_outputs", NULL, FLAG},
	{"disable_tta", NULL, FLAG},
	{"load_in_4bit", NULL, FLAG},
	{"low_cpu_mem_usage", NULL, FLAG},
	{"bf16_full_eval", NULL, FLAG},
	{"fp16_full_eval", "bf16_full_eval", FLAG},
	{"preprocess_logits_for_metrics", NULL, FLAG},
	{"sync_module_states", NULL, FLAG},
	{"sdpa", NULL, FLAG},
	{"torch_dtype", NULL, HALF},
	{"torch_dtype", "dtype", HALF},
	{"dtype", NULL, HALF},
	{"use_mmap", NULL, FLAG},
	{"highvram", NULL, FLAG},
	{"gpu_only", NULL, FLAG},
	{"no_half", NULL, FLAG},
	{"no_mmap", NULL, FLAG},
	{"disable_mmap", NULL, FLAG},
	{"mlock", NULL, FLAG},
	{"disable_gradient_checkpointing", NULL, FLAG},
	{"XLA_PYTHON_CLIENT_PREALLOCATE", NULL, OFF},
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
static bool is_known(const struct oom_crash *c, size_t row)
{
	for (size_t i = 0; i < c->n_told; i++)
		if (c->told[i].row == row)
			return true;
	return false;
}

static bool number_of(const char *value, double *v)
{
	char *end;

	*v = strtod(value, &end);
	/* "8," of a list, "0.9." of a sentence */
	return end > value && isfinite(*v) && (!*end || (*end == '.' && !end[1]) || *end == 'k');
}

void oom_told_note(struct oom_crash *c, const char *spelled, const char *name, size_t n, const char *value)
{
	const size_t long_name = (size_t)(name - spelled) + n;
	double v = 0;

	/* of one letter or two only with their dash: "-c 4096" */
	if (long_name >= sizeof(c->told[0].name) || (n < 3 && (name == spelled || name[-1] != '-')))
		return;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_crash_told *const t = &c->told[c->n_told];

		if (c->n_told == OOM_CRASH_TOLD)
			return;
		if (!oom_told_same(name, n, rows[i].name) || is_known(c, i) || (rows[i].least == HALF && !strstr(value, "16")))
			continue;
		if (rows[i].least >= 0 && (!number_of(value, &v) || v < 0 || v > 1e7))
			return;
		/* "-c 'import torch'", "-c config.yaml", a share in percent */
		if ((n < 3 && v < 32 && *rows[i].name != 'n') || (rows[i].least > 0 && rows[i].least < 1 && v > 1))
			return;
		memcpy(t->name, spelled, long_name);
		t->name[long_name] = 0;
		t->value = v;
		t->row = (uint8_t)i;
		c->n_told++;
	}
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
	{"no_half", "without --no-half: weights in 32 bits are twice as large", false},
	{"disable_gradient_checkpointing", "without disable_gradient_checkpointing: activations of all layers are kept", false},
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
