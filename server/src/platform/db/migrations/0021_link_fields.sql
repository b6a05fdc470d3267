-- A link may ask its payers for details, such as where to ship.
alter table payment_links add column payer_fields jsonb;
comment on column payment_links.payer_fields is
  'Names of the fields that the checkouts of the link ask for; null: none. The link is then not sold to agents, which can''t answer.';
drop trigger payment_links_audit on payment_links;
create trigger payment_links_audit after insert or delete or update of slug, title, description, amount, currency, product_id, split_id,
    redirect_url, max_uses, expires_at, active, payer_fields on payment_links for each row
  execute function write_audit_entry('payment_link', 'id',
    'slug,title,chain_id,description,amount,currency,product_id,split_id,redirect_url,max_uses,expires_at,active,payer_fields', '');
