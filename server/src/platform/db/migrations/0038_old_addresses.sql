-- Locks: `deposits` against writes while the index is built.

-- Finds the addresses of an older factory, which this version does not serve. It makes none, so the index stays small.
create index deposits_of_older_factory on deposits (id) where approver = '0x0000000000000000000000000000000000000000';
