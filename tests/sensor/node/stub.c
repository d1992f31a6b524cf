/* A stand-in for NVIDIA's library. What it says is in the text file named by NVML_STUB, read at every call:

     gpus 8                      how many there are, as counted when nobody had initialised the library before
     set FUNCTION GPU VALUE      what a question is answered with (GPU: number or *)
     link GPU NUMBER STATE       1: up, 0: down
     error FUNCTION GPU CODE     the question fails
     hang FUNCTION               it does not return while this line is there
     xid NUMBER GPU CODE         an event; NUMBER counts up, each is given once to each event set

   With -DOLD, the functions that drivers before 450 or so lack are missing. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_GPUS 16
#define LINKS 18
#define EXPORT __attribute__((visibility("default")))
typedef int ret_t;
typedef struct { int index; } gpu_t;
typedef struct { int last; int registered; } set_t;
static gpu_t gpus[MAX_GPUS];

static FILE *script(void) {
    const char *path = getenv("NVML_STUB");
    return path ? fopen(path, "r") : NULL;
}

static int lookup(const char *verb, const char *name, int gpu, long long *value) {
    char line[256], v[32], n[96], g[16];
    long long x = 0;
    int found = 0;
    FILE *f = script();
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) {
        x = 0;
        int got = sscanf(line, "%31s %95s %15s %lld", v, n, g, &x);
        if (got < 2 || strcmp(v, verb) || strcmp(n, name)) continue;
        if (got >= 3 && gpu >= 0 && strcmp(g, "*") && atoi(g) != gpu) continue;
        found = 1;
        *value = x;
    }
    fclose(f);
    return found;
}

static long long number(const char *word, long long otherwise) {
    char line[256], v[32];
    long long x, result = otherwise;
    FILE *f = script();
    if (!f) return otherwise;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%31s %lld", v, &x) == 2 && !strcmp(v, word)) result = x;
    fclose(f);
    return result;
}

static ret_t enter(const char *name, int gpu) {
    long long code;
    while (lookup("hang", name, -1, &code)) usleep(20000);
    return lookup("error", name, gpu, &code) || (gpu >= 0 && lookup("error", "*", gpu, &code)) ? (ret_t)code : 0;
}

static ret_t answer(const char *name, gpu_t *gpu, long long otherwise, long long *value) {
    ret_t r = enter(name, gpu->index);
    *value = otherwise;
    lookup("set", name, gpu->index, value);
    return r;
}

#define UINT_QUESTION(NAME, DEFAULT)                          \
    EXPORT ret_t NAME(gpu_t *gpu, unsigned *out) {            \
        long long v;                                          \
        ret_t r = answer(#NAME, gpu, DEFAULT, &v);            \
        *out = (unsigned)v;                                   \
        return r;                                             \
    }

static int users, counted;
EXPORT ret_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    ret_t r = enter("nvmlInitWithFlags", -1);
    if (!r && __sync_fetch_and_add(&users, 1) == 0) counted = (int)number("gpus", 8);
    return r;
}
EXPORT ret_t nvmlShutdown(void) {
    if (users <= 0) return 1;
    __sync_fetch_and_sub(&users, 1);
    return 0;
}
EXPORT const char *nvmlErrorString(ret_t r) { (void)r; return "an error of the stub"; }
EXPORT ret_t nvmlSystemGetDriverVersion(char *out, unsigned size) { snprintf(out, size, "550.54"); return 0; }
EXPORT ret_t nvmlDeviceGetCount_v2(unsigned *out) {
    *out = (unsigned)counted;
    return enter("nvmlDeviceGetCount_v2", -1);
}
EXPORT ret_t nvmlDeviceGetHandleByIndex_v2(unsigned index, gpu_t **out) {
    if (index >= MAX_GPUS) return 2;
    gpus[index].index = (int)index;
    *out = &gpus[index];
    return enter("nvmlDeviceGetHandleByIndex_v2", (int)index);
}
EXPORT ret_t nvmlDeviceGetUUID(gpu_t *gpu, char *out, unsigned size) {
    snprintf(out, size, "GPU-stub-%d", gpu->index);
    return enter("nvmlDeviceGetUUID", gpu->index);
}
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
EXPORT ret_t nvmlDeviceGetPciInfo_v3(gpu_t *gpu, struct pci *out) {
    memset(out, 0, sizeof *out);
    out->bus = 0x10 + (unsigned)gpu->index;
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    return enter("nvmlDeviceGetPciInfo_v3", gpu->index);
}
EXPORT ret_t nvmlDeviceGetTotalEccErrors(gpu_t *gpu, unsigned type, unsigned counter, unsigned long long *out) {
    char name[64];
    long long v = 0;
    ret_t r = enter("nvmlDeviceGetTotalEccErrors", gpu->index);
    snprintf(name, sizeof name, "ecc-%s-%s", type ? "uncorrected" : "corrected", counter ? "ever" : "now");
    lookup("set", name, gpu->index, &v);
    *out = (unsigned long long)v;
    return r;
}
EXPORT ret_t nvmlDeviceGetNvLinkState(gpu_t *gpu, unsigned link, unsigned *out) {
    char line[256];
    int g, l, s;
    ret_t r = enter("nvmlDeviceGetNvLinkState", gpu->index);
    FILE *f = script();
    if (link >= LINKS) { if (f) fclose(f); return 2; }
    *out = 1;
    if (f) {
        while (fgets(line, sizeof line, f))
            if (sscanf(line, "link %d %d %d", &g, &l, &s) == 3 && g == gpu->index && l == (int)link) *out = (unsigned)s;
        fclose(f);
    }
    return r;
}
UINT_QUESTION(nvmlDeviceGetCurrPcieLinkWidth, 16)
UINT_QUESTION(nvmlDeviceGetMaxPcieLinkWidth, 16)
UINT_QUESTION(nvmlDeviceGetPcieReplayCounter, 0)
UINT_QUESTION(nvmlDeviceGetPowerUsage, 71000)
EXPORT ret_t nvmlDeviceGetTemperature(gpu_t *gpu, unsigned sensor, unsigned *out) {
    long long v;
    (void)sensor;
    ret_t r = answer("nvmlDeviceGetTemperature", gpu, 34, &v);
    *out = (unsigned)v;
    return r;
}
EXPORT ret_t nvmlDeviceGetRetiredPagesPendingStatus(gpu_t *gpu, unsigned *out) {
    long long v;
    ret_t r = answer("nvmlDeviceGetRetiredPagesPendingStatus", gpu, 0, &v);
    *out = (unsigned)v;
    return r;
}
static ret_t reasons(const char *name, gpu_t *gpu, unsigned long long *out) {
    long long v;
    ret_t r = answer(name, gpu, 0, &v);
    *out = (unsigned long long)v;
    return r;
}
EXPORT ret_t nvmlDeviceGetCurrentClocksThrottleReasons(gpu_t *gpu, unsigned long long *out) {
    return reasons("nvmlDeviceGetCurrentClocksThrottleReasons", gpu, out);
}
#ifndef OLD
EXPORT ret_t nvmlDeviceGetCurrentClocksEventReasons(gpu_t *gpu, unsigned long long *out) {
    return reasons("nvmlDeviceGetCurrentClocksEventReasons", gpu, out);
}
EXPORT ret_t nvmlDeviceGetRemappedRows(gpu_t *gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                       unsigned *failed) {
    long long p = 0, x = 0;
    ret_t r = enter("nvmlDeviceGetRemappedRows", gpu->index);
    lookup("set", "remap-pending", gpu->index, &p);
    lookup("set", "remap-failed", gpu->index, &x);
    *corrected = *uncorrected = 0;
    *pending = (unsigned)p;
    *failed = (unsigned)x;
    return r;
}
struct field { uint32_t id, scope; int64_t at, latency; uint32_t type, ret; union { double d; unsigned u; unsigned long long ull; } value; };
EXPORT ret_t nvmlDeviceGetFieldValues(gpu_t *gpu, int count, struct field *fields) {
    ret_t r = enter("nvmlDeviceGetFieldValues", gpu->index);
    for (int i = 0; i < count; i++) {
        char name[32];
        long long v = 0;
        snprintf(name, sizeof name, "field-%u", fields[i].id);
        lookup("set", name, gpu->index, &v);
        fields[i].type = 3;
        fields[i].ret = 0;
        fields[i].value.ull = (unsigned long long)v;
    }
    return r;
}
#endif
EXPORT ret_t nvmlDeviceGetSupportedEventTypes(gpu_t *gpu, unsigned long long *out) { (void)gpu; *out = 8; return 0; }
EXPORT ret_t nvmlEventSetCreate(set_t **out) {
    *out = calloc(1, sizeof(set_t));
    return enter("nvmlEventSetCreate", -1);
}
EXPORT ret_t nvmlDeviceRegisterEvents(gpu_t *gpu, unsigned long long kinds, set_t *set) {
    (void)kinds;
    ret_t r = enter("nvmlDeviceRegisterEvents", gpu->index);
    if (!r) set->registered = 1;
    return r;
}
struct event { gpu_t *gpu; unsigned long long type, data; unsigned gi, ci; };
EXPORT ret_t nvmlEventSetWait_v2(set_t *set, struct event *out, unsigned timeout_ms) {
    char line[256];
    int n, g, code;
    for (unsigned waited = 0;; waited += 50) {
        ret_t r = enter("nvmlEventSetWait_v2", -1);
        if (r) return r;
        FILE *f = script();
        if (f) {
            while (fgets(line, sizeof line, f))
                if (sscanf(line, "xid %d %d %d", &n, &g, &code) == 3 && n > set->last) {
                    fclose(f);
                    set->last = n;
                    memset(out, 0, sizeof *out);
                    out->gpu = g >= 0 ? &gpus[g] : NULL;
                    out->type = 8;
                    out->data = (unsigned long long)code;
                    return 0;
                }
            fclose(f);
        }
        if (waited >= timeout_ms) return 10;
        usleep(50000);
    }
}
EXPORT ret_t nvmlEventSetFree(set_t *set) { free(set); return 0; }
