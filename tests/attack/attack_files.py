"""Files that the attacks read, write and start from."""


def write(name, data):
    with open(name, "wb") as file:
        file.write(data)


def read(name):
    with open(name, "rb") as file:
        return file.read()


SWEEP_HEAD = (b"selector,budget_kind,trace,phase,layer,q_head,kv_head,calls,rows,budget,mass_mean,"
              b"mass_low,mass_high,recall10,dense,window,config_hash\n")


def csv_of(names):
    rows = SWEEP_HEAD
    for name in names:
        quoted = b'"' + name.replace(b'"', b'""') + b'"'
        for budget in (16, 32):
            rows += quoted + b",tokens,t.h5,prefill,0,0,0,1,1,%d,0.5,0.4,0.6,0.7,0,0,abc\n" % budget
    return rows
