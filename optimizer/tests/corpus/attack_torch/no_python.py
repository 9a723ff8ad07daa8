# expect: unparsed
def ModelNew(:
    return
