-- A payment of several transfers, of which its merchant gave back exactly some by itself, was said to be returned as a whole. The comparison
-- took that for an altered row, and halted the payout wallet. Settling corrects such rows; it runs again where there are any.
--
-- Locks: none but the rows that it changes.
update transfers set run_at = now() where id in (
  select c.transfer_id from payments p join claims c on c.payment_id = p.id join transfers t on t.id = c.transfer_id
  where p.status = 'returned' and t.state <> 'gone'
    and p.amount <> (select coalesce(sum(u.value - d.given_back), 0) from claims d join transfers u on u.id = d.transfer_id
      where d.payment_id = p.id and u.state <> 'gone'));
