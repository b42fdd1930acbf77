/* A small stand-in for the NVIDIA driver's libnvidia-ml.so.1, so that the real bindings can be tested anywhere.

   It knows nothing by itself: every question goes as one line to a pretended machine behind the Unix socket
   that STAND_IN_NVML_SOCKET names (wire.py), and the answer's first number is NVML's return value.
   Built with -DOLD_DRIVER it lacks the symbols that came after R470. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { SUCCESS = 0, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9 };

/* A card (gi and ci are -1), a GPU instance (ci is -1), a compute instance, or the MIG device of one. */
typedef struct { int card, gi, ci; } thing;
typedef struct { unsigned start, size; } place;

static char answer[4096];
static char *rest; /* what follows the return value */

static int ask(const char *line) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const char *path = getenv("STAND_IN_NVML_SOCKET");
    size_t have = 0;
    ssize_t got;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (!path || fd < 0) return DRIVER_NOT_LOADED;
    strncpy(to.sun_path, path, sizeof to.sun_path - 1);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) { close(fd); return DRIVER_NOT_LOADED; }
    if (write(fd, line, strlen(line)) < 0 || write(fd, "\n", 1) < 0) { close(fd); return DRIVER_NOT_LOADED; }
    while (have < sizeof answer - 1 && (got = read(fd, answer + have, sizeof answer - 1 - have)) > 0) have += got;
    close(fd);
    answer[have] = 0;
    return (int)strtol(answer, &rest, 10);
}

static int askf(const char *what, int a, int b, int c, int d) {
    char line[128];
    snprintf(line, sizeof line, "%s %d %d %d %d", what, a, b, c, d);
    return ask(line);
}

static long number(void) { return strtol(rest, &rest, 10); }

static void text(char *to, unsigned size) {
    while (*rest == ' ') rest++;
    size_t n = strcspn(rest, "\t\n");
    if (n >= size) n = size - 1;
    memcpy(to, rest, n);
    to[n] = 0;
    rest += n;
    if (*rest) rest++;
}

static thing *new_thing(int card, int gi, int ci) {
    thing *made = malloc(sizeof *made);
    *made = (thing){card, gi, ci};
    return made;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return ask("open"); }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) {
    int code = ask("count");
    if (code == SUCCESS) *count = number();
    return code;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, thing **handle) {
    int code = askf("card", index, 0, 0, 0);
    if (code == SUCCESS) *handle = new_thing(index, -1, -1);
    return code;
}
static int word(const char *what, thing *of, char *to, unsigned size) {
    int code = askf(what, of ? of->card : 0, of ? of->gi : -1, of ? of->ci : -1, 0);
    if (code == SUCCESS) text(to, size);
    return code;
}
int nvmlSystemGetDriverVersion(char *to, unsigned size) { return word("driver", NULL, to, size); }
int nvmlDeviceGetName(thing *of, char *to, unsigned size) { return word("name", of, to, size); }
int nvmlDeviceGetUUID(thing *of, char *to, unsigned size) { return word("uuid", of, to, size); }
int nvmlSystemGetProcessName(unsigned pid, char *to, unsigned size) {
    int code = askf("process", pid, 0, 0, 0);
    if (code == SUCCESS) text(to, size);
    return code;
}
int nvmlDeviceGetCudaComputeCapability(thing *of, int *major, int *minor) {
    int code = askf("capability", of->card, 0, 0, 0);
    if (code == SUCCESS) { *major = number(); *minor = number(); }
    return code;
}
typedef struct { char old[16]; unsigned domain, bus, device, pci_device_id, subsystem; char bus_id[32]; } pci;
int nvmlDeviceGetPciInfo_v3(thing *of, pci *info) {
    int code = askf("pci", of->card, 0, 0, 0);
    memset(info, 0, sizeof *info);
    if (code == SUCCESS) info->pci_device_id = (unsigned)number();
    return code;
}

int nvmlDeviceGetMigMode(thing *of, unsigned *now, unsigned *pending) {
    int code = askf("mode", of->card, 0, 0, 0);
    if (code == SUCCESS) { *now = number(); *pending = number(); }
    return code;
}
int nvmlDeviceSetMigMode(thing *of, unsigned mode, int *status) {
    int code = askf("set_mode", of->card, mode, 0, 0);
    if (code == SUCCESS) *status = number();
    return code;
}

typedef struct {
    unsigned version, id, p2p, slices, instances, sms, copy, decoders, encoders, jpeg, ofa;
    unsigned long long memory_mb;
    char name[96];
} profile;
#ifndef OLD_DRIVER
int nvmlDeviceGetGpuInstanceProfileInfoV(thing *of, unsigned number_of, profile *info) {
    int code = askf("profile", of->card, number_of, 0, 0);
    if (code != SUCCESS) return code;
    info->id = number(); info->slices = number(); info->instances = number(); info->sms = number();
    info->copy = number(); info->decoders = number(); info->encoders = number(); info->jpeg = number();
    info->ofa = number(); info->memory_mb = number(); info->p2p = 0;
    text(info->name, sizeof info->name);
    return code;
}
#endif
int nvmlDeviceGetGpuInstancePossiblePlacements_v2(thing *of, unsigned id, place *places, unsigned *count) {
    int code = askf("placements", of->card, id, 0, 0);
    if (code != SUCCESS) return code;
    *count = number();
    for (unsigned i = 0; i < *count; i++) { places[i].start = number(); places[i].size = number(); }
    return code;
}
int nvmlDeviceGetGpuInstances(thing *of, unsigned id, thing **found, unsigned *count) {
    int code = askf("instances", of->card, id, 0, 0);
    if (code != SUCCESS) return code;
    *count = number();
    for (unsigned i = 0; i < *count; i++) found[i] = new_thing(of->card, number(), -1);
    return code;
}
int nvmlDeviceGetGpuInstanceById(thing *of, unsigned id, thing **found) {
    int code = askf("instance", of->card, id, 0, 0);
    if (code == SUCCESS) *found = new_thing(of->card, id, -1);
    return code;
}
typedef struct { thing *device; unsigned id, profile_id; place at; } gpu_instance;
int nvmlGpuInstanceGetInfo(thing *of, gpu_instance *info) {
    int code = askf("instance", of->card, of->gi, 0, 0);
    if (code != SUCCESS) return code;
    info->device = NULL; info->id = of->gi; info->profile_id = number();
    info->at.start = number(); info->at.size = number();
    return code;
}
int nvmlDeviceCreateGpuInstanceWithPlacement(thing *of, unsigned id, const place *at, thing **made) {
    int code = askf("create", of->card, id, at->start, 0);
    if (code == SUCCESS) *made = new_thing(of->card, number(), -1);
    return code;
}
int nvmlGpuInstanceDestroy(thing *of) { return askf("destroy", of->card, of->gi, 0, 0); }

typedef struct {
    unsigned version, id, slices, instances, sms, copy, decoders, encoders, jpeg, ofa;
    char name[96];
} compute_profile;
int nvmlGpuInstanceGetComputeInstanceProfileInfoV(thing *of, unsigned k, unsigned engine, compute_profile *info) {
    int code = askf("compute_profile", of->card, of->gi, k, engine);
    if (code != SUCCESS) return code;
    info->id = number(); info->slices = number(); info->sms = number();
    info->instances = 7; info->name[0] = 0;
    return code;
}
int nvmlGpuInstanceGetComputeInstances(thing *of, unsigned id, thing **found, unsigned *count) {
    int code = askf("compute_instances", of->card, of->gi, id, 0);
    if (code != SUCCESS) return code;
    *count = number();
    for (unsigned i = 0; i < *count; i++) found[i] = new_thing(of->card, of->gi, number());
    return code;
}
int nvmlGpuInstanceGetComputeInstanceById(thing *of, unsigned id, thing **found) {
    int code = askf("compute_instance", of->card, of->gi, id, 0);
    if (code == SUCCESS) *found = new_thing(of->card, of->gi, id);
    return code;
}
typedef struct { thing *device, *instance; unsigned id, profile_id; place at; } compute_instance;
int nvmlComputeInstanceGetInfo_v2(thing *of, compute_instance *info) {
    int code = askf("compute_instance", of->card, of->gi, of->ci, 0);
    if (code != SUCCESS) return code;
    info->device = info->instance = NULL; info->id = of->ci; info->profile_id = number();
    info->at.start = number(); info->at.size = number();
    return code;
}
int nvmlGpuInstanceCreateComputeInstance(thing *of, unsigned id, thing **made) {
    int code = askf("create_compute", of->card, of->gi, id, -1);
    if (code == SUCCESS) *made = new_thing(of->card, of->gi, number());
    return code;
}
int nvmlGpuInstanceCreateComputeInstanceWithPlacement(thing *of, unsigned id, const place *at, thing **made) {
    int code = askf("create_compute", of->card, of->gi, id, at->start);
    if (code == SUCCESS) *made = new_thing(of->card, of->gi, number());
    return code;
}
int nvmlComputeInstanceDestroy(thing *of) { return askf("destroy_compute", of->card, of->gi, of->ci, 0); }

int nvmlDeviceGetMaxMigDeviceCount(thing *of, unsigned *count) { (void)of; *count = 7; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(thing *of, unsigned index, thing **part) {
    int code = askf("mig_device", of->card, index, 0, 0);
    if (code != SUCCESS) return code;
    int gi = number();
    *part = new_thing(of->card, gi, number());
    return code;
}
int nvmlDeviceGetGpuInstanceId(thing *of, unsigned *id) { *id = of->gi; return SUCCESS; }
int nvmlDeviceGetComputeInstanceId(thing *of, unsigned *id) { *id = of->ci; return SUCCESS; }

typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process;
#ifdef OLD_DRIVER
#define nvmlDeviceGetComputeRunningProcesses_v3 nvmlDeviceGetComputeRunningProcesses_v2
#endif
int nvmlDeviceGetComputeRunningProcesses_v3(thing *of, unsigned *count, process *found) {
    int code = askf("processes", of->card, 0, 0, 0);
    if (code != SUCCESS) return code;
    unsigned room = *count;
    *count = number();
    if (*count > room) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) {
        found[i].pid = number(); found[i].used = number(); found[i].gi = number(); found[i].ci = 0;
    }
    return code;
}
