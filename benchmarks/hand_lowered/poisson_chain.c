/* The Poisson random walk in plain C: what poisson_chain.py does, one loop forward and one back in every sweep. */
#include <math.h>
#include <stdlib.h>

static void smooth(long n, double q, const double *h, const double *lam, double *m, double *v, double *log_z) {
    double *mf = malloc(n * sizeof *mf), *vf = malloc(n * sizeof *vf);
    double mean = 0.0, var = 10.0, total = 0.0;
    for (long k = 0; k < n; k++) {
        double vp = var + q, mp = mean;
        double gain = 1.0 / (1.0 + vp * lam[k]);
        var = gain * vp;
        mean = gain * (mp + vp * h[k]);
        mf[k] = mean;
        vf[k] = var;
        if (log_z) total += 0.5 * (mean * mean / var - mp * mp / vp + log(var / vp));
    }
    m[n - 1] = mean;
    v[n - 1] = var;
    for (long k = n - 2; k >= 0; k--) {
        double vp = vf[k] + q, gain = vf[k] / vp;
        mean = mf[k] + gain * (mean - mf[k]);
        var = vf[k] + gain * gain * (var - vp);
        m[k] = mean;
        v[k] = var;
    }
    if (log_z) *log_z = total;
    free(mf);
    free(vf);
}

void poisson_chain(const double *y, const unsigned char *seen, long n, double q, double alpha, long sweeps, double *m,
                   double *v, double *free_energy) {
    double *h = malloc(n * sizeof *h), *lam = malloc(n * sizeof *lam), log_z, total = 0.0;
    for (long s = 0; s <= sweeps; s++) {
        if (s) {
            smooth(n, q, h, lam, m, v, 0);
        } else {
            for (long k = 0; k < n; k++) {
                m[k] = log(y[k] + 0.5);
                v[k] = fmin(1.0 / (y[k] + 0.5), 1.0);
            }
        }
        double rate = s ? alpha : 1.0;
        for (long k = 0; k < n; k++) {
            double rho = exp(m[k] + 0.5 * v[k]), old_h = s ? h[k] : 0.0, old_lam = s ? lam[k] : 0.0;
            h[k] = old_h + rate * ((seen[k] ? y[k] + (m[k] - 1.0) * rho : 0.0) - old_h);
            lam[k] = old_lam + rate * ((seen[k] ? rho : 0.0) - old_lam);
        }
    }
    smooth(n, q, h, lam, m, v, &log_z);
    for (long k = 0; k < n; k++)
        if (seen[k])
            total += y[k] * m[k] - exp(m[k] + 0.5 * v[k]) - lgamma(y[k] + 1.0) - h[k] * m[k]
                     + 0.5 * lam[k] * (v[k] + m[k] * m[k]);
    *free_energy = -log_z - total;
    free(h);
    free(lam);
}
