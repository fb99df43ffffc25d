/* What people call the cards of the shipped catalogue in a sentence: "V100", "2080", "A6000". */
#ifndef OOM_INPUT_GPU_WORDS_H
#define OOM_INPUT_GPU_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* A word, as data/gpus.csv spells it. */
struct oom_gpu_word {
	char word[12];
	unsigned gb, gb_ti;             /* memory of all cards of this word, and of those with "Ti" behind it; 0: none, or several sizes */
	bool before_bf16;               /* all cards of this word are NVIDIA's, below compute capability 8.0 */
	bool alone;                     /* a card without its maker's name before it: it begins with a letter, or is an alias */
};

enum { OOM_GPU_WORDS = 192 };

/* The words of all cards, each once; how many.  It reads the embedded file as it lies and allocates nothing, since a
 * log may have thousands of messages. */
size_t oom_gpu_words(struct oom_gpu_word out[OOM_GPU_WORDS]);

#endif
