/* What TRL's trainers train for: by the command, by the keys that one of them has, by the names that people give. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "arguments.h"
#include "parts.h"
#include "trl.h"

/* The trainer by the command or script that is launched: "trl sft", "trl/scripts/kto.py",
 * "scripts/run_dpo.py". */
static const char *of_program(const char *program)
{
	static const struct {
		const char *program, *objective;
	} known[] = {
		{"sft", "sft"}, {"sft_vlm", "sft"}, {"dpo", "dpo"}, {"dpo_vlm", "dpo"}, {"kto", "kto"},
		{"reward", "reward"}, {"reward_modeling", "reward"}, {"grpo", "grpo"},
		{"grpo_vlm", "grpo"}, {"rloo", "rloo"}, {"ppo", "ppo"}, {"ppo_tldr", "ppo"},
		{"grpo_fast", "grpo"}, {"dpo_tune", "dpo"}, {"dpo_tune_cache", "dpo"}, {"finetune", "sft"},
		{"orpo", "orpo"}, {"cpo", "cpo"}, {"gkd", "gkd"}, {"online_dpo", "online-dpo"},
		{"dpo_online", "online-dpo"}, {"nash_md", "nash-md"}, {"xpo", "xpo"}, {"bco", "bco"},
		{"prm", "prm"}, {"run_sft", "sft"}, {"run_dpo", "dpo"}, {"run_orpo", "orpo"},
		{"run_simpo", "simpo"}, {"run_clm", "pretrain"}, {"run_mlm", "pretrain"},
	};
	const char *slash = strrchr(program, '/'), *blank = strrchr(slash ? slash : program, ' ');
	const char *name = blank ? blank + 1 : slash ? slash + 1 : program, *module = strrchr(name, '.');
	size_t n = strcspn(name, ".");

	/* python -m trl.scripts.sft */
	if (module && !slash && strcmp(module, ".py")) {
		name = module + 1;
		n = strlen(name);
	}
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strlen(known[i].program) == n && !strncasecmp(known[i].program, name, n))
			return known[i].objective;
	return NULL;
}

/* The command in the comment that a file begins with: "# trl dpo --config FILE",
 * "# accelerate launch scripts/run_dpo.py ..." */
static const char *of_comment(const char *head)
{
	const char *found = NULL;
	bool trl = false;

	for (const char *w = head; *w && !found;) {
		const size_t n = strcspn(w, " \t\r\n");
		char word[120];

		snprintf(word, sizeof(word), "%.*s", (int)n, w);
		if (trl || (n > 3 && !strcmp(word + (n < sizeof(word) ? n : sizeof(word) - 1) - 3, ".py")))
			found = of_program(word);
		trl = !strcmp(word, "trl");
		w += n;
		w += strspn(w, " \t\r\n");
	}
	return found;
}

const char *trl_launched(const struct fw_part *p)
{
	const char *program = fw_text(p, "(program)");

	return *program ? of_program(program) : of_comment(fw_head(p));
}

/* Objectives by the keys that only they have. */
static const struct {
	const char *key, *objective;
} signs[] = {
	{"reward_funcs", "grpo"},
	{"num_generations", "grpo"},
	{"num_samples_per_prompt_rollout", "grpo"},     /* open-instruct grpo_fast.py */
	{"scale_rewards", "grpo"},
	{"max_completion_length", "grpo"},
	{"gamma_beta_ratio", "simpo"},
	{"simpo_gamma", "simpo"},
	{"desirable_weight", "kto"},
	{"undesirable_weight", "kto"},
	{"center_rewards_coefficient", "reward"},
	{"reward_model_path", "ppo"},
	{"kl_coef", "ppo"},
	{"missing_eos_penalty", "online-dpo"},
	{"cpo_alpha", "cpo"},
	{"teacher_model_name_or_path", "distill"},
	{"beta", "dpo"},
	{"precompute_ref_log_probs", "dpo"},
	{"max_prompt_length", "dpo"},
};

/* Options of a command whose program is not known: any trainer's. */
bool trl_lacks_program(const struct fw_part *p)
{
	const struct doc *doc = fw_doc(p);

	return doc && doc->format && !strcmp(doc->format, ARGS_FORMAT) && !trl_launched(p);
}

/* The trainer that people write into names, "Some-1B-KTO", "org/kto-pairs": a guess. */
static const char *named_in(const char *text)
{
	static const char *const words[] = {"online-dpo", "kto", "dpo", "grpo", "rloo", "reward", "orpo",
					    "cpo", "simpo", "sft"};

	for (const char *at = text; *at; at++)
		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
			const size_t n = strlen(words[i]);

			if ((at == text || !isalnum((unsigned char)at[-1])) &&
			    !strncasecmp(at, words[i], n) && !isalnum((unsigned char)at[n]))
				return words[i];
		}
	return NULL;
}

/* A key of several trainers of pairs ("beta", "max_prompt_length"): recipes lie in folders that are named after theirs
 * (alignment-handbook recipes/MODEL/orpo/config_full.yaml), and write it into what they push. */
static void pair_objective(struct fw_part *p)
{
	static const char *const trainers[] = {"orpo", "kto", "cpo", "simpo"}, *const keys[] = {"hub_model_id", "output_dir", "run_name"};
	const char *file = fw_doc(p)->file ? fw_doc(p)->file : "", *name = strrchr(file, '/'), *word = NULL, *from = "the file's folder";
	char folder[200];

	while (name && name > file && name[-1] != '/')
		name--;
	snprintf(folder, sizeof(folder), "%s", name ? name : file);
	word = named_in(folder);
	if (!word && (word = named_in(fw_text(p, "(program)"))) != NULL)
		from = "(program)";
	for (size_t i = 0; !word && i < sizeof(keys) / sizeof(keys[0]); i++) {
		word = named_in(fw_text(p, keys[i]));
		from = keys[i];
	}
	for (size_t i = 0; word && i < sizeof(trainers) / sizeof(trainers[0]); i++)
		if (!strcmp(word, trainers[i])) {
			fw_set(p, "objective", word, NULL, from);
			fw_open(p, "objective", "several trainers have the keys that are here; taken from a name: give --objective");
		}
}

static bool guess_objective(struct fw_part *p)
{
	static const char *const keys[] = {"(program)", "output_dir", "run_name", "dataset_name"};

	if (!trl_lacks_program(p))
		return false;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		const char *word = named_in(fw_text(p, keys[i]));

		if (!word)
			continue;
		fw_set(p, "objective", word, keys[i], "the trainer that this name speaks of");
		fw_open(p, "objective", "the trainer is not named; taken from a name: give --objective");
		return true;
	}
	return false;
}

/* CPOTrainer trains SimPO by its loss_type (trl/experimental/cpo/cpo_config.py), and scripts ask DPOTrainer for ORPO by
 * it (shibing624/MedicalGPT training/orpo_training.py), which TRL's own has no branch for. */
void part_pair_loss(struct fw_part *p, const char *key)
{
	static const struct {
		const char *trainer, *loss, *refused;
	} pairs[] = {{"cpo", "simpo", NULL},
		     {"dpo", "orpo", "TRL's DPOTrainer knows no loss_type orpo and ends with an error (dpo_trainer.py:1560 at "
				     "f2cd577, \"Unknown loss type\"); what ORPOTrainer needs is priced"}};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
		if (fw_fact_is(p, "objective", pairs[i].trainer) && !strcasecmp(fw_text(p, key), pairs[i].loss)) {
			fw_set(p, "objective", pairs[i].loss, key, "the trainer's loss");
			if (pairs[i].refused)
				fw_open(p, "objective", pairs[i].refused);
			return;
		}
}

void trl_objective(struct fw_part *p)
{
	if (trl_launched(p)) {
		fw_set(p, "@known-script", "true", NULL, NULL);
		fw_set(p, "objective", trl_launched(p), "(program)",
		       *fw_text(p, "(program)") ? "the trainer of this program" : "the command in the file's comment");
		return;
	}
	if (*fw_text(p, "@objective")) {
		fw_set(p, "objective", fw_text(p, "@objective"), "@objective", "the trainer");
		return;
	}
	hf_objective_by_name(p);
	if (*fw_fact(p, "objective"))
		return;
	if (guess_objective(p))
		return;
	for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++)
		if (doc_below(fw_root(p), signs[i].key)) {
			fw_set(p, "objective", signs[i].objective, signs[i].key,
			       "a key that only this trainer has");
			if (!strcmp(signs[i].objective, "dpo"))
				pair_objective(p);
			return;
		}
	fw_default(p, "objective", "sft", "no key of another trainer");
	if (trl_lacks_program(p))
		fw_open(p, "objective", "the trainer is not named; sft is taken: give --objective");
}
