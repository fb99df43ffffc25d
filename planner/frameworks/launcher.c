/* What starts a run: torchrun, accelerate launch, deepspeed, srun and their like, and variables of
 * the environment.  Their options stand in one map; variables end in '='. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ladder/allocator_variable.h"
#include "framework.h"

#define TORCHRUN "torch/distributed/run.py"
#define ACCELERATE "accelerate/commands/launch.py"
#define DEEPSPEED "deepspeed/launcher/runner.py"
#define COMPOSER "composer"

static const struct fw_row rows[] = {
	{"name", .hook = true},
	{"nproc_per_node", .hook = true, .source = TORCHRUN},
	{"nnodes", .hook = true, .source = TORCHRUN},
	{"num_processes", .hook = true, .source = ACCELERATE ":197"},
	{"num_machines", .hook = true, .source = ACCELERATE ":200"},
	{"num_gpus", .hook = true, .source = DEEPSPEED},
	{"num_nodes", .hook = true},
	{"include", .hook = true, .source = DEEPSPEED},
	{"gpus", .hook = true},
	{"gpus-per-node", .hook = true, .source = "sbatch(1)"},
	{"gres", .hook = true, .source = "sbatch(1)"},
	{"nodes", .hook = true, .source = "sbatch(1)"},
	{"N", .hook = true, .source = "sbatch(1)"},
	{"ntasks", .hook = true, .source = "srun(1)"},
	{"ntasks-per-node", .hook = true, .source = "srun(1)"},
	{"n", .hook = true, .source = "composer/cli/launcher.py"},
	{"CUDA_VISIBLE_DEVICES=", .hook = true},
	{"ASCEND_RT_VISIBLE_DEVICES=", .hook = true},
	{"NGPU=", .hook = true, .source = "torchtitan run_train.sh"},
	{"NPROC_PER_NODE=", .hook = true, .source = "swift/cli/main.py"},
	{"NNODES=", .hook = true, .source = "swift/cli/main.py"},
	{OOM_ALLOCATOR_VARIABLE "=", .hook = true, .source = "PyTorch CUDA notes"},
	{OOM_ALLOCATOR_VARIABLE_2_9 "=", .hook = true, .source = "PyTorch CUDA notes"},
	{"FPS_MAX_FRAMES=", .source = "qwen_vl_utils/vision_process.py",
	 .note = "at most so many frames of each video, of which the price has none: see --video-frames"},
	FW_KEY("mixed_precision", "@autocast", "bf16>bf16;fp16>fp16;no>no;fp8>bf16;false>no;true>", NULL,
	       ACCELERATE ":189"),
	FW_KEY("gradient_accumulation_steps", "grad-accum", NULL, NULL, ACCELERATE),
	{"fp8_backend", .hook = true, .source = ACCELERATE},
	{"fp8_enable_fsdp_float8_all_gather", .hook = true, .source = ACCELERATE},
	{"config_file", .hook = true, .source = ACCELERATE},
	{"use_deepspeed", .hook = true, .source = ACCELERATE},
	{"deepspeed_config_file", .hook = true, .source = ACCELERATE},
	FW_KEY("zero_stage", "zero", NULL, NULL, ACCELERATE ":416"),
	FW_KEY("offload_optimizer_device", "offload-optimizer", NULL, NULL, ACCELERATE ":423"),
	FW_KEY("offload_param_device", "offload-params", NULL, NULL, ACCELERATE ":430"),
	{"use_fsdp", .hook = true, .source = ACCELERATE},
	{"fsdp_version", .hook = true, .source = ACCELERATE},
	{"fsdp_backward_prefetch", .hook = true, .source = ACCELERATE},
	{"fsdp_backward_prefetch_policy", .hook = true, .source = ACCELERATE},
	FW_KEY("fsdp_sharding_strategy", "zero",
	       "FULL_SHARD>3;SHARD_GRAD_OP>2;NO_SHARD>0;HYBRID_SHARD>3 hybrid-shard=true;1>3;2>2;3>0;"
	       "4>3 hybrid-shard=true",
	       NULL, ACCELERATE ":533"),
	FW_KEY("fsdp_offload_params", "offload-params", "true>cpu offload-optimizer=cpu;false>none", NULL,
	       ACCELERATE ":520"),
	{.key = NULL},
};

/* How many names a list "0,1,2" has; 0 where it is none. */
static int64_t listed(const char *text)
{
	int64_t n = 1;

	if (!*text || *text == '$' || *text == '-')
		return 0;
	for (; *text; text++)
		n += *text == ',' && text[1];
	return n;
}

/* "nnode" of "nnodes", '-' and '_' being one: argparse and getopt take beginnings of options. */
static bool abbreviates(const char *word, const char *option)
{
	size_t n = 0;

	for (; word[n]; n++)
		if (word[n] != option[n] && !(strchr("-_", word[n]) && option[n] && strchr("-_", option[n])))
			return false;
	return n >= 4 && option[n] && option[n] != '=';
}

/* The key as the launcher was given it. */
static const char *given(const struct fw_part *p, const char *option)
{
	const char *found = NULL;

	if (doc_below(fw_root(p), option))
		return option;
	for (const struct doc_node *c = fw_root(p)->child; c; c = c->next)
		if (c->key && abbreviates(c->key, option))
			found = c->key;
	return found;
}

static int64_t whole(const struct fw_part *p, const char *const *keys, const char **key)
{
	int64_t n;

	for (size_t i = 0; keys[i]; i++) {
		const char *name = given(p, keys[i]);

		if (name && doc_whole(fw_key(p, name), &n) && n > 0 && n < 1000000) {
			*key = name;
			return n;
		}
	}
	return 0;
}

/* "gpu:8", "gpu:a100:8" */
static int64_t after_colon(const char *text)
{
	const char *colon = strrchr(text, ':');
	const long n = colon ? strtol(colon + 1, NULL, 10) : 0;

	return n > 0 && n < 100000 ? n : 0;
}

/* "localhost:0,1,2" */
static int64_t included(const char *text)
{
	const char *colon = strchr(text, ':');

	return colon ? listed(colon + 1) : 0;
}

/* A number of machines that only the cluster knows ("$SLURM_NNODES") is not one. */
static bool withhold(struct fw_part *p, const char *const *keys)
{
	for (size_t i = 0; keys[i]; i++)
		if (given(p, keys[i]) && !fw_key(p, given(p, keys[i]))) {
			fw_withhold(p, "nodes");
			return true;
		}
	return false;
}

/* Slurm starts a task for each card where there are several on a machine: then tasks say how many machines there are.
 * *each becomes the tasks of one. */
static int64_t machines_of_tasks(const struct fw_part *p, int64_t *each)
{
	static const char *const all_keys[] = {"ntasks", NULL}, *const node_keys[] = {"ntasks-per-node", NULL};
	const char *key;
	const int64_t all = whole(p, all_keys, &key), of_node = whole(p, node_keys, &key);

	*each = all > 1 && of_node > 1 && all % of_node == 0 ? of_node : 0;
	return *each ? all / of_node : 0;
}

static void finish_gpus(struct fw_part *p)
{
	static const char *const node_keys[] = {"nnodes", "num_machines", "num_nodes", "nodes", "N",
						"NNODES=", NULL};
	/* -n counts processes of a node to composer, and those of the whole job to srun, mpirun and sbatch */
	static const char *const each_keys[] = {"nproc_per_node", "num_gpus", "gpus", "gpus-per-node", "nproc",
						"NPROC_PER_NODE=", "NGPU=", NULL};
	static const char *const short_keys[] = {"n", NULL};
	static const char *const all_keys[] = {"num_processes", NULL};
	const char *node_key = NULL, *key = NULL, *visible = "CUDA_VISIBLE_DEVICES=";
	int64_t nodes = whole(p, node_keys, &node_key), each, all = whole(p, all_keys, &key), tasks = 0;

	if (!nodes) {
		nodes = machines_of_tasks(p, &tasks);
		node_key = "ntasks";
	}
	if (nodes)
		fw_set_whole(p, "nodes", nodes, node_key, NULL);
	else if (withhold(p, node_keys))
		fw_withhold(p, "gpus");
	if (all) {
		fw_set_whole(p, "gpus", all, key, ACCELERATE " num_processes: over all machines");
		return;
	}
	each = whole(p, each_keys, &key);
	if (!each && (each = included(fw_text(p, "include"))) > 0)
		key = "include";
	if (!each && !strcmp(fw_text(p, "name"), COMPOSER))
		each = whole(p, short_keys, &key);
	if (!each && (each = after_colon(fw_text(p, "gpus-per-node"))) > 0)
		key = "gpus-per-node";
	if (!each && (each = after_colon(fw_text(p, "gres"))) > 0)
		key = "gres";
	if (!each && (each = tasks) > 0)
		key = "ntasks-per-node";
	if (!each) {
		if (!*fw_text(p, visible))
			visible = "ASCEND_RT_VISIBLE_DEVICES=";
		each = listed(fw_text(p, visible));
		key = visible;
		/* several cards and one process: the model is laid out over them, by frameworks that
		 * do that; theirs to say */
		if (each > 1 && !*fw_text(p, "name"))
			fw_set(p, "@one-process", "true", visible, NULL);
	}
	if (each && each < 100000 && !fw_is_withheld(p, "gpus"))
		fw_set_whole(p, "gpus", each * (nodes ? nodes : 1), key,
			     nodes > 1 ? "processes of a node x nodes" : NULL);
	else if (each && each < 100000)
		fw_set_whole(p, "gpus-per-node", each, key, "of as many machines as the cluster gives");
	if (each && !nodes)
		fw_default(p, "nodes", "1", "one machine is launched");
}

static void finish(struct fw_part *p)
{
	const char *conf = OOM_ALLOCATOR_VARIABLE "=", *config = fw_text(p, "config_file");

	if (!*fw_text(p, conf))
		conf = OOM_ALLOCATOR_VARIABLE_2_9 "=";
	if (strstr(fw_text(p, conf), "expandable_segments:True") ||
	    strstr(fw_text(p, conf), "expandable_segments:true"))
		fw_set(p, "allocator", "expandable_segments", conf, NULL);
	finish_gpus(p);
	if (*config && !fw_follow(p, "config_file", config))
		fw_name_accelerate(p, "config_file", config);
	if (fw_on(p, "use_deepspeed")) {
		fw_set(p, "engine", "deepspeed", "use_deepspeed", NULL);
		fw_take_deepspeed(p, "deepspeed_config_file");
	}
	if (fw_on(p, "use_fsdp")) {
		fw_set(p, "engine", !strcmp(fw_text(p, "fsdp_version"), "2") ? "fsdp2" : "fsdp1",
		       "use_fsdp", NULL);
		fw_take_prefetch(p, (const char *const[]){"fsdp_backward_prefetch", "fsdp_backward_prefetch_policy", NULL});
	}
	fw_accelerate_fp8(p, "fp8_backend", "fp8_enable_fsdp_float8_all_gather");
	if (*fw_fact(p, "engine") && strcmp(fw_fact(p, "engine"), "deepspeed"))
		fw_default(p, "zero", "3", ACCELERATE " FULL_SHARD");
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {"*", NULL};

const struct framework framework_launcher = {
	.name = "launcher",
	.summary = "torchrun, accelerate launch, deepspeed, srun, sbatch and the environment",
	.version = "torch 2.8, accelerate 1.10, deepspeed 0.17",
	.role = FW_LAUNCHER,
	.marks = "(no file)",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
