"""What the operating system gives, made safe once: files, sockets, interrupts and compiled loops.

It stands on nothing but the tree of errors, and everything may use it. It knows no source, no query and no person. A
change here touches every command, so each promise (atomic, durable, bounded, interruptible) has a test of its own.

    files       atomic and private writes; reading a file that somebody named, up to a limit; locks between processes
    sockets     listening before a service starts
    serving     a server that leaves no connection open
    interrupts  Ctrl-C where nothing may be left half made; shutdown without a thread inside compiled code; limits of
                memory and processor time; no core dumps
    logs        a time in every line, and a line for each change of state
    plugins     what other distributions add, by entry points
    kernels     inner loops, compiled once and cached
"""
