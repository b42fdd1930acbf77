/* As much of NVIDIA's driver as is asked to wake a GPU. Says what it was asked, each in a line of the file that
   CALLS names; FAILS names a question that it answers with an error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int answered(const char *question, int number) {
    FILE *calls = fopen(getenv("CALLS"), "a");
    const char *fails = getenv("FAILS");
    fprintf(calls, "%s %d\n", question, number);
    fclose(calls);
    return fails && !strcmp(fails, question) ? 100 : 0;
}

int cuInit(unsigned int flags) { return answered("init", (int)flags); }

int cuDeviceGet(int *device, int ordinal) {
    *device = 40 + ordinal;
    return answered("get", ordinal);
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = context;
    return answered("retain", device);
}
