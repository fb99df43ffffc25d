/* What starts a training program: launchers, wrappers, interpreters, and frameworks' own commands. */
#include "launchers.h"

#include <string.h>

static const struct launcher launchers[] = {
	{"torchrun", NULL, LAUNCHER},
	{"torch.distributed.run", NULL, LAUNCHER},
	{"torch.distributed.launch", NULL, LAUNCHER},
	{"accelerate", "launch", LAUNCHER},
	{"accelerate.commands.launch", NULL, LAUNCHER},
	{"deepspeed", NULL, LAUNCHER},
	{"composer", NULL, LAUNCHER},
	{"srun", NULL, LAUNCHER},
	{"sbatch", NULL, LAUNCHER},
	{"mpirun", NULL, LAUNCHER},
	{"mpiexec", NULL, LAUNCHER},
	{"mason.py", NULL, LAUNCHER},
	{"horovodrun", NULL, LAUNCHER},
	{"python", NULL, INTERPRETER},
	{"python3", NULL, INTERPRETER},
	{"python2", NULL, INTERPRETER},
	{"swift", "sft", PROGRAM},
	{"swift", "pt", PROGRAM},
	{"swift", "rlhf", PROGRAM},
	{"megatron", "sft", PROGRAM},
	{"megatron", "pt", PROGRAM},
	{"megatron", "rlhf", PROGRAM},
	{"llamafactory-cli", "train", PROGRAM},
	{"lmf", "train", PROGRAM},
	{"axolotl", "train", PROGRAM},
	{"trl", "sft", PROGRAM},
	{"trl", "dpo", PROGRAM},
	{"trl", "kto", PROGRAM},
	{"trl", "grpo", PROGRAM},
	{"trl", "reward", PROGRAM},
	{"trl", "rloo", PROGRAM},
	{"tune", "run", LAUNCHER},
	{"litgpt", "finetune", PROGRAM},
	{"litgpt", "finetune_lora", PROGRAM},
	{"litgpt", "finetune_full", PROGRAM},
	{"litgpt", "finetune_adapter", PROGRAM},
	{"litgpt", "finetune_adapter_v2", PROGRAM},
	{"litgpt", "pretrain", PROGRAM},
	{"automodel", NULL, PROGRAM},
	{"run_train.sh", NULL, PROGRAM},        /* torchtitan's: CONFIG_FILE and NGPU of the environment */
	{"nohup", NULL, WRAPPER},
	{"time", NULL, WRAPPER},
	{"sudo", NULL, WRAPPER},
	{"exec", NULL, WRAPPER},
	{"env", NULL, WRAPPER},
	{"setsid", NULL, WRAPPER},
	{"nsys", "profile", WRAPPER},
	{"numactl", NULL, WRAPPER},
	{"stdbuf", NULL, WRAPPER},
	{"uv", "run", WRAPPER},
	{"poetry", "run", WRAPPER},
	{"conda", "run", WRAPPER},
	{"pdm", "run", WRAPPER},
	{"singularity", "exec", WRAPPER},
	{"apptainer", "exec", WRAPPER},
	{"docker", "run", WRAPPER},
	{"ray", "job", WRAPPER},
	{"kubectl", "exec", WRAPPER},
};

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

const struct launcher *launcher_at(const struct args_word *w, size_t n)
{
	const char *word = n ? base_name(w[0].text) : "";

	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
		const struct launcher *l = &launchers[i];

		if (!strcmp(l->word, word) &&
		    (!l->second || (n > 1 && !strcmp(l->second, w[1].text))))
			return l;
	}
	/* python3.11 */
	return !strncmp(word, "python3.", 8) ? launcher_at(&(struct args_word){.text = "python"}, 1)
					     : NULL;
}

bool args_is_launch(const struct args_word *w, size_t n)
{
	for (size_t i = 0; i < n && i < 400; i++) {
		const struct launcher *l = launcher_at(w + i, n - i);

		/* python3 -c "import torch; ...": what it runs is no program with options */
		if (l && l->kind == INTERPRETER && i + 1 < n && !strcmp(w[i + 1].text, "-c"))
			return false;
		if ((l && l->kind != WRAPPER) || args_is_script(w[i].text))
			return true;
	}
	return false;
}

bool args_is_trainer(const struct args_word *w, size_t n)
{
	for (size_t i = 0; i < n && i < 400; i++) {
		const struct launcher *l = launcher_at(w + i, n - i);

		if (l && l->kind == PROGRAM)
			return true;
	}
	return false;
}
