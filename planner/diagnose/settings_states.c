/* Among whom a run divides its model, what of it waits on the host, and which engine speaks beside it: by options, by names
 * of files and classes, by what people write. */
#include <ctype.h>
#include <string.h>

#include "tables.h"

static bool any(const char *begin, const char *end, const char *const *marks)
{
	for (; *marks; marks++)
		if (oom_text_find(begin, end, *marks))
			return true;
	return false;
}

/* One of these begins a word: "train_ppo", "PPOConfig", not "support". */
static bool begins_word(const char *begin, const char *end, const char *const *marks)
{
	for (; *marks; marks++)
		for (const char *p = begin; (p = oom_text_find(p, end, *marks)); p++)
			if (p == begin || !isalpha((unsigned char)p[-1]))
				return true;
	return false;
}

/* "offload_optimizer": {"device": "cpu"} of DeepSpeed's JSON, as a keyword or an option alone; "none" is its default. */
static bool offloads_states(struct oom_crash *c, const char *begin, const char *end)
{
	bool found = false;

	for (const char *p = begin; (p = oom_text_find(p, end, "offload_opt")); p++) {
		const char *const to = end - p > 60 ? p + 60 : end, *const brace = oom_text_find(p, to, "{"), *const stop = brace ? oom_text_find(brace, to, "}") : NULL;

		if (brace && oom_text_find(brace, stop ? stop : to, "none"))
			continue;
		found = true;
		if (brace && (oom_text_find(brace, stop ? stop : to, "cpu") || oom_text_find(brace, stop ? stop : to, "nvme")))
			c->set |= OOM_SET(OOM_LEVER_OPTIMIZER);
	}
	return found;
}

void oom_settings_of_states(struct oom_crash *c, const char *begin, const char *end)
{
	static const char *const dividers[] = {"zero2", "zero_2", "zero-2", "zero3", "zero_3", "zero-3", "_z2", "_z3", "ZeRO", "fsdp", "FSDP", "stage2", "stage3",
					       "stage_1_and_2", "fully_shard", "deepspeed_zero_optimizer", "DeepSpeedStrategy(", NULL};
	static const char *const second[] = {"zero2", "zero_2", "zero-2", "_z2", "stage2", "stage_1_and_2", "ZeRO-2", "\"stage\": 2", "\"stage\":2", "zero_stage: 2", "zero_stage=2", "zero_stage 2", "zero-stage 2", "ero stage 2",
						"ero Stage 2", "eRO stage 2", "eRO Stage 2", "ZeRO2", "deepspeed_zero_optimizer", NULL},
				 *const zero[] = {"deepspeed", "DeepSpeed", "ZeRO", NULL},
				 *const single[] = {"Num GPUs = 1", "Num GPUs used = 1", "ingle GPU", "ingle gpu", "single A100", "single H100", "'devices': 1,", "World size: 1\n", "world_size=1,", "num_processes: 1\n", NULL};
	static const char *const rollouts[] = {"ppo", "PPO", "grpo", "GRPO", "rloo", "RLOO", "Reinforce++", "reinforce++", NULL};
	static const char *const of_answers[] = {"grpo", "GRPO", "rloo", "RLOO", NULL};
	static const char *const engines[] = {"/vllm/v1/", "/vllm/worker/", "/vllm/engine/", "/vllm/executor/", "/sglang/srt/", NULL};
	static const char *const third[] = {"\"stage\": 3", "\"stage\":3", "'stage': 3", "stage: 3", NULL};
	static const char *const with_offload[] = {"with CPU offload", "with cpu offload", "with CPU Offload", "+ CPU offload", "+ cpu offload", "offload to CPU)", "ptimizer offload to CPU", NULL};
	/* as LLaMA-Factory and ms-swift call their configurations, and OpenRLHF its option */
	static const char *const files[] = {"z2_offload", "z3_offload", "zero2_offload", "zero3_offload", "zero2-offload", "zero3-offload", "adam_offload", NULL};
	static const char *const without[] = {"use_vllm false", "use_vllm=False", "use_vllm: false", "use_vllm = False"};

	/* of DeepSpeed's configuration, which calls it zero_optimization */
	if (oom_text_find(begin, end, "zero_optimization") && any(begin, end, third))
		c->set |= OOM_SET(OOM_LEVER_SHARD);
	c->sharded = (c->set & OOM_SET(OOM_LEVER_SHARD)) || c->rank >= 0 || oom_told(c, "nproc_per_node") > 1 || oom_text_find(begin, end, "fsdp") ||
		     oom_text_find(begin, end, "FSDP") || oom_text_find(begin, end, "deepspeed") || oom_text_find(begin, end, "FullyShard") || oom_text_find(begin, end, "fully_sharded");
	c->splits = (c->set & OOM_SET(OOM_LEVER_SHARD)) || any(begin, end, dividers);
	c->second_stage = !(c->set & OOM_SET(OOM_LEVER_SHARD)) && any(begin, end, second);
	c->zero = c->splits && any(begin, end, zero);
	c->one_process = oom_told(c, "nproc_per_node") == 1 || any(begin, end, single);
	c->offloads = oom_text_find(begin, end, "CPUAdam") || offloads_states(c, begin, end) || oom_text_find(begin, end, "z3_offload") ||
		      oom_text_find(begin, end, "z2_offload") || oom_text_find(begin, end, "adam_offload") || any(begin, end, with_offload);
	if (any(begin, end, with_offload) || any(begin, end, files))
		c->set |= OOM_SET(OOM_LEVER_OPTIMIZER);
	c->wsl = oom_text_find(begin, end, "WSL") || oom_text_find(begin, end, "wsl2");
	c->disks = oom_text_find(begin, end, "nvme_path") || oom_text_find(begin, end, "\"nvme\"") || oom_text_find(begin, end, "device: nvme") || oom_text_find(begin, end, "device nvme");
	c->rolls = begins_word(begin, end, rollouts);
	/* those that score groups of answers were made for language models (Shao et al. 2024, arXiv:2402.03300, section 4.1;
	 * Ahmadian et al. 2024, arXiv:2402.14740) */
	c->language |= begins_word(begin, end, of_answers);
	c->engine_loads = any(begin, end, engines);
	/* who trains and gives a share to an engine, or makes one: vLLM's LLM(), SGLang's Engine() */
	c->engine = oom_told(c, "gpu_memory_utilization") || oom_told(c, "vllm_gpu_memory_utilization") ||
		    oom_told(c, "sglang_mem_fraction_static") || oom_text_find(begin, end, "vllm/entrypoints/llm.py") ||
		    oom_text_find(begin, end, "sglang/srt/entrypoints/engine.py") || (c->rolls && c->engine_loads);
	for (size_t i = 0; i < sizeof(without) / sizeof(without[0]); i++)
		c->engine &= !oom_text_find(begin, end, without[i]);
}
