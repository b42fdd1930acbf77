/* A small stand-in for the NVIDIA driver's libnvidia-ml.so.1, so that the real bindings can be tested anywhere.

   Two cards: number 0 is whole, number 1 is cut into slices 0 and 2, with a gap between them.
   Built with -DOLD_DRIVER it lacks the newer symbols; with -DANCIENT_DRIVER it cannot even be opened.
   The environment makes it fail: STAND_IN_<WHAT>_ERROR holds the code that <WHAT> answers with. */

#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

typedef struct {
    int index, slice;
    const char *name, *uuid;
    unsigned long long total, free;
    unsigned cores, sms, gpu_instance;
    int major, minor;
    unsigned mig_now, mig_pending;
} thing;

#define GIB (1024ull * 1024 * 1024)

static thing cards[2] = {
    {0, -1, "NVIDIA H200", "GPU-aaaaaaaa-0000-0000-0000-000000000000", 140 * GIB, 139 * GIB, 16896, 0, 0, 9, 0, 0, 0},
    {1, -1, "NVIDIA A100-SXM4-40GB", "GPU-bbbbbbbb-1111-1111-1111-111111111111", 40 * GIB, 39 * GIB, 6912, 0, 0, 8, 0, 1, 1},
};

static int open_count = 0, ever_opened = 0;
int stand_in_open_count(void) { return open_count; }
int stand_in_ever_opened(void) { return ever_opened; }

static int asked_error(const char *variable) {
    const char *code = getenv(variable);
    return code ? atoi(code) : SUCCESS;
}

static int copy(char *to, unsigned size, const char *from) {
    if (strlen(from) >= size) return INVALID_ARGUMENT;
    strcpy(to, from);
    return SUCCESS;
}

#ifndef ANCIENT_DRIVER
int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    int error = asked_error("STAND_IN_INIT_ERROR");
    if (error == SUCCESS) { open_count++; ever_opened++; }
    return error;
}
#endif

int nvmlShutdown(void) { open_count--; return SUCCESS; }
int nvmlSystemGetDriverVersion(char *to, unsigned size) { return copy(to, size, "580.99.01"); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13020; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return asked_error("STAND_IN_COUNT_ERROR"); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, thing **handle) {
    if (index > 1) return INVALID_ARGUMENT;
    *handle = &cards[index];
    return index == 1 ? asked_error("STAND_IN_CARD_1_ERROR") : SUCCESS;
}

int nvmlDeviceGetName(thing *of, char *to, unsigned size) { return copy(to, size, of->name); }
int nvmlDeviceGetHandleByUUID(const char *uuid, thing **handle) {
    for (int i = 0; i < 2; i++) {
        if (strcmp(cards[i].uuid, uuid) == 0) { *handle = &cards[i]; return SUCCESS; }
    }
    return NOT_FOUND;
}

/* Each question finds it 2.5 J later. */
int nvmlDeviceGetTotalEnergyConsumption(thing *of, unsigned long long *millijoules) {
    static unsigned long long drawn = 0;
    (void)of;
    *millijoules = drawn += 2500;
    return asked_error("STAND_IN_ENERGY_ERROR");
}

/* The A100 does not tell. */
int nvmlDeviceGetEnforcedPowerLimit(thing *of, unsigned *milliwatts) {
    *milliwatts = 700000;
    return of->index == 0 ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetUUID(thing *of, char *to, unsigned size) { return copy(to, size, of->uuid); }

int nvmlDeviceGetCudaComputeCapability(thing *of, int *major, int *minor) {
    *major = of->major;
    *minor = of->minor;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(thing *of, unsigned long long *memory) {
    memory[0] = of->total;
    memory[1] = of->free;
    memory[2] = of->total - of->free;
    return asked_error("STAND_IN_MEMORY_ERROR");
}

#ifndef OLD_DRIVER
static thing slices[2] = {
    {1, 0, "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "MIG-cccccccc-2222-2222-2222-222222222222", 20 * GIB, 19 * GIB, 0, 42, 2, 8, 0, 0, 0},
    {1, 2, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "MIG-dddddddd-3333-3333-3333-333333333333", 5 * GIB, 4 * GIB, 0, 14, 9, 8, 0, 0, 0},
};

int nvmlDeviceGetNumGpuCores(thing *of, unsigned *cores) { *cores = of->cores; return SUCCESS; }

int nvmlDeviceGetMigMode(thing *of, unsigned *now, unsigned *pending) {
    const char *wanted = getenv("STAND_IN_CARD_0_MIG_PENDING");
    *now = of->mig_now;
    *pending = of->index == 0 && wanted ? (unsigned)atoi(wanted) : of->mig_pending;
    return asked_error("STAND_IN_MIG_MODE_ERROR");
}

int nvmlDeviceGetMaxMigDeviceCount(thing *of, unsigned *count) { *count = of->mig_now ? 7 : 0; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(thing *of, unsigned index, thing **slice) {
    if (!of->mig_now) return NOT_SUPPORTED;
    for (int i = 0; i < 2; i++)
        if (slices[i].slice == (int)index) {
            *slice = &slices[i];
            return asked_error("STAND_IN_SLICE_ERROR");
        }
    return NOT_FOUND;
}

int nvmlDeviceGetAttributes_v2(thing *of, unsigned *attributes) {
    if (of->slice < 0) return NOT_SUPPORTED;
    attributes[0] = of->sms;
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(thing *of, unsigned *id) { *id = of->gpu_instance; return SUCCESS; }
int nvmlDeviceGetComputeInstanceId(thing *of, unsigned *id) { (void)of; *id = 0; return SUCCESS; }
#endif
