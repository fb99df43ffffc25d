/* Feeds every file of a corpus to a fuzz target: the corpus as a normal test. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv)
{
	DIR *dir = argc > 1 ? opendir(argv[1]) : NULL;
	int n = 0;

	if (!dir) {
		fprintf(stderr, "usage: driver CORPUS_DIR\n");
		return 2;
	}
	for (struct dirent *d; (d = readdir(dir)) != NULL;) {
		char path[1024];
		uint8_t *buf = malloc(1 << 22);
		FILE *f;

		snprintf(path, sizeof(path), "%s/%s", argv[1], d->d_name);
		f = d->d_name[0] == '.' ? NULL : fopen(path, "rb");
		if (f && buf) {
			const size_t size = fread(buf, 1, 1 << 22, f);

			LLVMFuzzerTestOneInput(buf, size);
			n++;
		}
		if (f)
			fclose(f);
		free(buf);
	}
	closedir(dir);
	printf("%d passed, 0 failed\n", n);
	return n == 0;
}
