/* Requests that are printed as a shape and a type: their bytes. */
#include <stdio.h>
#include <stdlib.h>

#include "parts.h"

/* TensorFlow's order: images, rows, columns, colours; a map of features has more channels than four. */
static void images(struct oom_crash *c, const double d[4], int dimensions)
{
	if (dimensions != 4 || d[3] > 4 || d[1] < 256 || d[2] < 256 || d[1] > 1e6 || d[2] > 1e6)
		return;
	c->image[0] = (int64_t)d[1];
	c->image[1] = (int64_t)d[2];
}

/* TensorFlow: shape[25088,4096] and type float */
void oom_number_of_tf_shape(struct oom_crash *c, const char *at, const char *end)
{
	static const struct {
		const char *name;
		int bytes;
	} types[] = {{"float", 4}, {"double", 8}, {"half", 2},	{"bfloat16", 2}, {"int32", 4},
		     {"int64", 8}, {"int8", 1},	  {"uint8", 1}, {"bool", 1},	 {"complex64", 8}};
	const char *p = oom_text_find(at, end, "shape["), *type, *shape;
	double n = 1, first = 0, d[4] = {0};
	int dimensions = 0;

	/* TensorFlow 1 said "of shape [1,2]" in one of its kernels */
	p = p ? p : oom_text_find(at, end, "shape [");
	shape = p;
	if (!p)
		return;
	for (p += p[5] == ' ' ? 7 : 6; p < end && *p != ']';) {
		char *stop;
		const double one = strtod(p, &stop);

		if (stop == p)
			return;
		first = dimensions ? first : one;
		d[dimensions < 4 ? dimensions : 3] = one;
		dimensions++;
		n *= one;
		p = *stop == ',' ? stop + 1 : stop;
	}
	images(c, d, dimensions);
	if (dimensions == 2 && d[0] >= 1 && d[1] >= 1 && d[0] < 1e9 && d[1] < 1e9) {
		c->matrix[0] = (int64_t)d[0];
		c->matrix[1] = (int64_t)d[1];
	}
	/* the weights of a convolution: rows and columns of its kernel first */
	if (dimensions == 4 && d[0] <= 11 && d[0] == d[1]) {
		first = 0;
		c->kernel = true;
	}
	if (dimensions > 2 && first >= 1 && first < 1e9)
		c->first_dimension = (int64_t)first;
	type = oom_text_find(p, end, "type ");
	for (size_t i = 0; type && i < sizeof(types) / sizeof(types[0]); i++)
		if (!strncmp(type + 5, types[i].name, strlen(types[i].name)) &&
		    n * types[i].bytes < 9e18) {
			char text[40];

			snprintf(text, sizeof(text), "%.*s %s",
				 (int)(p + 1 - shape < 30 ? p + 1 - shape : 30), shape,
				 types[i].name);
			oom_number_put(c, OOM_CRASH_TRIED, (uint64_t)(n * types[i].bytes), text,
			    text + strlen(text));
			return;
		}
}

/* NumPy: "array with shape (9681, 9681) and data type float64"; since 1.18 its size stands before it. */
void oom_number_of_numpy_shape(struct oom_crash *c, const char *at, const char *end)
{
	static const struct {
		const char *name;
		int bytes;
	} types[] = {{"float64", 8},   {"float32", 4},	  {"float16", 2}, {"int64", 8},
		     {"int32", 4},     {"int16", 2},	  {"int8", 1},	  {"uint8", 1},
		     {"uint16", 2},    {"uint32", 4},	  {"uint64", 8},  {"bool", 1},
		     {"complex64", 8}, {"complex128", 16}};
	const char *p = oom_text_find(at, end, "shape ("), *shape = p, *type;
	double n = 1, first = 0, last = 0;
	int dimensions = 0;

	if (!p)
		return;
	for (p += 7; p < end && *p != ')';) {
		char *stop;
		const double d = strtod(p, &stop);

		if (stop == p)
			return;
		first = dimensions++ ? first : d;
		last = d;
		n *= d;
		p = stop + (*stop == ',');
		p += *p == ' ';
	}
	/* one image has its colours last */
	if (dimensions > 1 && first >= 2 && first < 1e12 && !(dimensions == 3 && last <= 4))
		c->first_dimension = (int64_t)first;
	type = oom_text_find(p, end, "data type ");
	c->wide = type && (!strncmp(type + 10, "float64", 7) || !strncmp(type + 10, "complex128", 10) || !strncmp(type + 10, "int64", 5));
	c->pairs = c->first_dimension && dimensions == 2 && first == last;
	if (c->known[OOM_CRASH_TRIED])
		return;
	type = oom_text_find(p, end, "data type ");
	/* "<U1847338": text of four bytes a letter, each entry as wide as the longest */
	if (type && end - type > 13 && type[10] == '<' && type[11] == 'U' && n * 4 * strtod(type + 12, NULL) < 9e18 && strtod(type + 12, NULL) >= 1) {
		char text[64];
		const double wide = strtod(type + 12, NULL);

		snprintf(text, sizeof(text), "%.0f x %.0f letters of 4 bytes", n, wide);
		oom_number_put(c, OOM_CRASH_TRIED, (uint64_t)(n * 4 * wide), text, text + strlen(text));
		c->text_array = true;
		return;
	}
	for (size_t i = 0; type && i < sizeof(types) / sizeof(types[0]); i++) {
		const size_t w = strlen(types[i].name);
		char text[64];

		if (strncmp(type + 10, types[i].name, w) ||
		    (type[10 + w] >= '0' && type[10 + w] <= '9') || !(n * types[i].bytes < 9e18))
			continue;
		snprintf(text, sizeof(text), "shape%.*s %s",
			 (int)(p + 1 - shape - 6 < 22 ? p + 1 - shape - 6 : 22), shape + 6,
			 types[i].name);
		oom_number_put(c, OOM_CRASH_TRIED, (uint64_t)(n * types[i].bytes), text, text + strlen(text));
		return;
	}
}
