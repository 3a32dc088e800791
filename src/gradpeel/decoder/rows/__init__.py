"""The row cascade: reading samples where no neuron stands alone.

Peeling needs a neuron that one unknown sample fires alone. The linear algebra of an update holds
more. The target's weight gradient is G = C^T X, so the column space of G over neurons is spanned by
the rows of C, the samples' sensitivities; and each row is zero wherever its sample is silent, which
is at hundreds of neurons. No other vector of a space of `rank` dimensions is zero at many more than
`rank` of them. So a row can be found from a rough idea of where its sample is silent, and any
mixture of samples is such an idea.

1. `space`: the column space of what peeling has left.
2. `seeds`: mixtures of samples that are not found yet, made without knowing a single sample.
3. `search`: from the firing pattern of each mixture to a vector that lies in the space and looks
   like a row, many at once, in float32.
4. `polish`: from there to the row itself, in all digits of the update; what is no row is rejected.
5. `reading`: once all rows are known, the samples are the solution of a linear system. Each of them
   is then held against the update as if it had been read from a neuron that it fires alone: with
   all others taken out, it does.

Nothing is certified here: that is left to `gradpeel.decoder.certificate`, as for every candidate.
"""
