/* A regular expression, parsed into nodes: what regex_parse.c makes and regex.c matches. */
#ifndef OOM_REGEX_H
#define OOM_REGEX_H

#include <stdbool.h>

/* A pattern is at most OOM_NAMES_SIZE characters, each of which makes two nodes at most. */
enum { OOM_REGEX_NODES = 600 };

enum oom_regex_kind {
	OOM_RE_EMPTY,
	OOM_RE_CHAR,
	OOM_RE_ANY,
	OOM_RE_SET,
	OOM_RE_CLASS,
	OOM_RE_BEGIN,
	OOM_RE_END,
	OOM_RE_WORD_EDGE,
	OOM_RE_SPLIT,
	OOM_RE_REPEAT,
	OOM_RE_GROUP,
	OOM_RE_LOOK
};

struct oom_regex_node {
	enum oom_regex_kind kind;
	short next;             /* what follows; -1: nothing */
	short a, b;             /* SPLIT: alternatives; REPEAT, GROUP, LOOK: the body is a */
	short min, max;         /* REPEAT; max -1: without end */
	bool lazy, negative;
	char c;                 /* CHAR, CLASS (d w s D W S) */
	const char *from, *to;  /* SET: between the brackets */
};

struct oom_regex {
	struct oom_regex_node node[OOM_REGEX_NODES];
	short n;                /* nodes used */
	const char *at, *why;   /* how far it was read; what is wrong with it, or NULL */
	int depth;
};

/* The first node of the pattern.  With r->why set it cannot be read, and r->at is where. */
short oom_regex_parse(struct oom_regex *r, const char *pattern);
/* Whether the character behind a backslash names a class: d w s D W S. */
bool oom_regex_is_class(char c);

#endif
