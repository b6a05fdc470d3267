-- A transaction of a request holds only while the request's credential does: a key that was revoked, or a session that was ended,
-- after the request was admitted writes nothing.
create function hold_credential(key text, key_hash text, session text) returns void language plpgsql as $$
begin
  if key is not null then
    perform from api_keys where id = key and key_hash in (hash, previous_hash);
    if not found then
      raise exception 'the key was revoked' using errcode = 'SL002';
    end if;
  end if;
  if session is not null then
    perform from sessions where id = session;
    if not found then
      raise exception 'the session was ended' using errcode = 'SL002';
    end if;
  end if;
end $$;

-- Found through the schema of its tables, whatever the search path of who calls it.
do $$
begin
  execute format('alter function hold_credential(text, text, text) set search_path = pg_catalog, %s, pg_temp',
    (select relnamespace::regnamespace from pg_class where oid = 'api_keys'::regclass));
end $$;
