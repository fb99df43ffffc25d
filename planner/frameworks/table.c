/* The frameworks, in the order of help; of two that know as many of a file's keys the first. */
#include "framework.h"

#define FRAMEWORKS(X) X(trl) X(hf) X(accelerate) X(deepspeed) X(axolotl) X(alpaca_lora) X(llamafactory) \
	X(llamafactory_v1) X(ms_swift) X(python) X(megatron_lm) X(torchtune) X(torchtitan) X(litgpt) X(llm_foundry) X(verl) \
	X(openrlhf) X(nemo) \
	X(gpt_neox) X(automodel) X(nemo_rl) X(llama_cookbook) X(easyr1) \
	X(fsdp_qlora) X(lightning) X(open_instruct) X(deepspeed_chat) X(own_script) X(task) X(launcher) X(pins) X(requirements)
#define DECLARE(name) extern const struct framework framework_##name;
#define ROW(name) &framework_##name,
FRAMEWORKS(DECLARE)

static const struct framework *const table[] = {FRAMEWORKS(ROW)};

const struct framework *framework_at(size_t i)
{
	return i < sizeof(table) / sizeof(table[0]) ? table[i] : NULL;
}
