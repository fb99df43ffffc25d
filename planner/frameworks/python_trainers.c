/* The trainers that Python scripts make, and what they train for. */
#include <stdio.h>
#include <string.h>

#include "arguments.h"
#include "parts.h"

/* Trainers, a script's own ones derived from them too ("CustomDPOTrainer"), and what they train. */
static const char *const trained[][2] = {
	{"GRPOTrainer", "grpo"}, {"DPOTrainer", "dpo"}, {"ORPOTrainer", "orpo"}, {"KTOTrainer", "kto"},
	{"CPOTrainer", "cpo"}, {"RewardTrainer", "reward"}, {"PPOTrainer", "ppo"}, {"GKDTrainer", "gkd"},
	{"RLOOTrainer", "rloo"}, {"SFTTrainer", "sft"}};
enum { N_TRAINED = sizeof(trained) / sizeof(trained[0]) };

/* Which of them a call makes; N_TRAINED: none. */
static size_t trained_by(const char *class)
{
	const size_t n = strlen(class);
	size_t i;

	for (i = 0; i < N_TRAINED; i++) {
		const size_t m = strlen(trained[i][0]);

		if (n >= m && !strcmp(class + n - m, trained[i][0]))
			break;
	}
	return i;
}

/* TRL's trainers take a name in a model's place and load it (trl/trainer/sft_trainer.py create_model_from_path). */
void python_named(struct fw_part *p)
{
	char path[160];

	for (size_t i = 0; i < N_TRAINED; i++) {
		const struct doc_node *model;

		snprintf(path, sizeof(path), "%s.model", trained[i][0]);
		model = doc_below(fw_root(p), path);
		if (!model || model->kind != DOC_SCALAR)
			continue;
		if (model->quoted && !*fw_fact(p, "model"))
			fw_set(p, "model", model->text, path, NULL);
		/* what that call adapts, and how, was read with it */
		if (!strncmp(model->text, "get_peft_model(", 15) && *fw_fact(p, "model") && *fw_fact(p, "lora-r"))
			fw_answered(p, path);
	}
}

const char *python_trainer_objective(const char *class)
{
	const size_t i = trained_by(class);

	return i < N_TRAINED ? trained[i][1] : NULL;
}

bool python_own_trainer(const char *class)
{
	static const char *const others[] = {"Trainer", "Seq2SeqTrainer", "OnlineDPOTrainer", "XPOTrainer", "NashMDTrainer",
					     "BCOTrainer", "PRMTrainer", "PPOv2Trainer", "IterativeSFTTrainer"};
	const size_t n = strlen(class);

	if (n < 7 || strcmp(class + n - 7, "Trainer"))
		return false;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (!strcmp(class, others[i]))
			return false;
	return trained_by(class) == N_TRAINED || strcmp(class, trained[trained_by(class)][0]);
}

/* TrainingArguments are everybody's: the trainer says what it does.  Of several the first counts. */
void python_objective_by_trainer(struct fw_part *p, const char *config)
{
	size_t first = N_TRAINED;
	bool others = false;

	fw_default(p, "loop", "trainer", config);
	for (const struct doc_node *c = fw_root(p)->child; c; c = c->next) {
		const size_t i = trained_by(c->key);

		if (i == N_TRAINED)
			continue;
		others |= first < N_TRAINED && i != first;
		first = first < N_TRAINED ? first : i;
	}
	if (first < N_TRAINED && !*fw_fact(p, "objective"))
		fw_set(p, "objective", trained[first][1], NULL, "the trainer");
	fw_default(p, "objective", "sft", "the trainer");
	if (others) {
		char why[200];

		snprintf(why, sizeof(why), "the script makes several trainers; arguments are those of %s: micro-batch, "
			 "grad-accum, grad-ckpt, optimizer, seq-len may be another's", config);
		fw_open(p, "objective", why);
	}
}
